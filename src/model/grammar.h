#pragma once
// GBNF grammars that constrain sampling.

#include <cstdint>
#include <string>
#include <vector>

#include "varve/status.h"

struct llama_vocab;

namespace varve::model {

struct GrammarSpec {
  std::string text = {};  ///< GBNF with a rule named root; empty: no grammar
  /// Lazy: the text is free until a trigger appears, then the grammar holds from the trigger on.
  bool lazy = false;
  std::vector<std::string> trigger_patterns = {};  ///< regular expressions over the generated text
  std::vector<int32_t> trigger_tokens = {};
  /// Text the prompt has already opened and the grammar starts with.
  std::string prefill = {};
};

/// Checks a grammar before libllama parses it (which would write its complaints to stderr, and recurses without bound).
Status check_grammar(const llama_vocab* vocab, const std::string& text);

}  // namespace varve::model
