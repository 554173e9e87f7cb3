#include "model/grammar.h"

#include <llama-grammar.h>

#include <algorithm>

#include "model/ggml_guard.h"

namespace varve::model {
namespace {

constexpr size_t kMostGrammarBytes = size_t{1} << 20;
constexpr int kDeepestNesting = 200;  // parentheses; the parser recurses once per level

/// Deepest nesting of parentheses outside literals, character classes and comments.
int nesting(const std::string& text) {
  int depth = 0, deepest = 0;
  char closes = 0;  // end of the literal, class or comment we are in
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (closes != 0) {
      if (c == '\\' && closes != '\n')
        ++i;
      else if (c == closes)
        closes = 0;
    } else if (c == '"') {
      closes = '"';
    } else if (c == '[') {
      closes = ']';
    } else if (c == '#') {
      closes = '\n';
    } else if (c == '(') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ')') {
      --depth;
    }
  }
  return deepest;
}

/// First position that is neither space nor comment.
const char* skip_space(const char* p) {
  while (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n' || *p == '#') {
    if (*p != '#') {
      ++p;
      continue;
    }
    while (*p != '\0' && *p != '\r' && *p != '\n') ++p;
  }
  return p;
}

Status check_references(const llama_grammar_parser& parser) {
  for (const auto& [name, id] : parser.symbol_ids) {
    if (id >= parser.rules.size() || parser.rules[id].empty()) {
      return invalid_argument("grammar: rule '" + name + "' is used but not defined");
    }
  }
  if (parser.symbol_ids.count("root") == 0) return invalid_argument("grammar: there is no rule named root");
  return Status();
}

}  // namespace

Status check_grammar(const llama_vocab* vocab, const std::string& text) {
  if (text.size() > kMostGrammarBytes) {
    return invalid_argument("grammar: " + std::to_string(text.size()) + " bytes, at most " +
                            std::to_string(kMostGrammarBytes) + " are allowed");
  }
  if (const int depth = nesting(text); depth > kDeepestNesting) {
    return invalid_argument("grammar: parentheses nest " + std::to_string(depth) + " deep, at most " +
                            std::to_string(kDeepestNesting) + " are allowed");
  }
  return guarded("grammar", [&] {
    llama_grammar_parser parser(vocab);
    for (const char* p = skip_space(text.c_str()); *p != '\0';) p = parser.parse_rule(p);
    return check_references(parser);
  });
}

}  // namespace varve::model
