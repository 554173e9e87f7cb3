#include <algorithm>
#include <set>

#include "eval/tasks/generators.h"
#include "eval/tasks/noise.h"
#include "eval/tasks/words.h"

namespace varve::eval {
namespace {

constexpr int kAnswerTokens = 128;

/// A needle, the asked ones and those that are hay.
std::string needle_text(bool uuid_values, const std::string& key, const std::string& value) {
  return std::string("One of the special magic ") + (uuid_values ? "uuids" : "numbers") + " for " + key +
         " is: " + value + ".";
}

/// "a", "a and b", "a, b, and c".
std::string enumerate(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += words.size() == 2 ? " and " : i + 1 == words.size() ? ", and " : ", ";
    text += words[i];
  }
  return text;
}

/// Keys and values that never come twice.
class Drawn {
 public:
  Drawn(const NiahKind& kind, Random& random) : kind_(kind), random_(random) {}
  std::string key() { return kind_.uuid_keys ? random_uuid(random_) : new_key(random_, taken_); }
  std::string value() { return kind_.uuid_values ? random_uuid(random_) : new_number(random_, 7, taken_); }

 private:
  const NiahKind& kind_;
  Random& random_;
  std::set<std::string> taken_;
};

/// The frame around the text, in the number that the question needs.
Question make_question(const NiahKind& kind, const std::vector<std::string>& keys) {
  const bool one = kind.queries * kind.values == 1;
  const std::string what = std::string(kind.uuid_values ? "uuid" : "number") + (one ? "" : "s");
  const std::string about = "special magic " + what + " for " + enumerate(keys) + " mentioned in the provided text";
  Question question;
  question.text = (one ? "\nWhat is the " : "\nWhat are all the ") + about + "?";
  question.answer_prefix = "The " + about + (one ? " is" : " are");
  question.answer_tokens = kAnswerTokens;
  return question;
}

std::string make_preamble(const NiahKind& kind) {
  const bool one = kind.queries * kind.values == 1;
  const std::string what = kind.uuid_values ? "uuid" : "number";
  return (one ? "A special magic " + what + " is" : "Some special magic " + what + "s are") +
         " hidden within the following text. Make sure to memorize " + (one ? "it" : "them") +
         ". I will quiz you about the " + what + (one ? "" : "s") + " afterwards.\n";
}

/// Lines of other needles as hay, as many as could ever be needed.
std::vector<std::string> needle_lines(const NiahKind& kind, Drawn& drawn, int length) {
  constexpr int kFewestTokens = 8;   // of a needle, in any tokenizer: its words and its digits
  constexpr int kMostLines = 12000;  // of the 15,812 keys that there are
  std::vector<std::string> lines;
  for (int i = 0; i < std::clamp(length / kFewestTokens, 1, kMostLines); ++i) {
    const std::string key = drawn.key();
    lines.push_back(needle_text(kind.uuid_values, key, drawn.value()) + "\n");
  }
  return lines;
}

}  // namespace

Draft draft_niah(const std::string& task, const NiahKind& kind, const Source& source) {
  Random random = source.random(task);
  Drawn drawn(kind, random);
  const bool prose = kind.hay == NiahKind::Hay::kProse;
  const std::string separator = prose ? " " : "\n";

  Draft draft{task, task, source.index, make_preamble(kind)};
  std::vector<std::string> asked;
  std::vector<Needle> needles;
  std::vector<std::string> references;
  std::vector<size_t> asked_needles;
  for (int k = 0; k < kind.keys; ++k) {
    const std::string key = drawn.key();
    if (k < kind.queries) asked.push_back(key);
    for (int v = 0; v < kind.values; ++v) {
      const std::string value = drawn.value();
      if (k < kind.queries) references.push_back(value), asked_needles.push_back(needles.size());
      needles.push_back({needle_text(kind.uuid_values, key, value) + separator});
    }
  }
  Question question = make_question(kind, asked);
  question.references = references;
  question.needles = asked_needles;
  draft.questions = {question};

  const GridDepths depths(random);
  draft.min_units = static_cast<int>(needles.size());
  const auto place = [needles, depths](const std::vector<std::string_view>& pieces, const std::vector<int>& tokens) {
    std::vector<Needle> placed = needles;
    const std::vector<int> at = depths.positions(tokens, static_cast<int>(placed.size()));
    for (size_t i = 0; i < placed.size(); ++i) placed[i].before = at[i];
    return insert_needles(pieces, placed);
  };
  const auto alike = [](int lines) { return std::vector<int>(static_cast<size_t>(lines), 1); };
  if (prose) {
    draft.document = source.text->name();
    draft.max_units = source.text->size();
    const size_t start = random.below(static_cast<uint64_t>(source.text->size()));
    draft.fill = [text = source.text, start, place](int units) {
      return place(text->from(start, units), text->tokens_from(start, units));
    };
  } else if (kind.hay == NiahKind::Hay::kNoise) {
    draft.max_units = source.options->length;
    draft.fill = [place, alike](int units) { return place(noise_lines(units), alike(units)); };
  } else {
    auto lines = std::make_shared<std::vector<std::string>>(needle_lines(kind, drawn, source.options->length));
    draft.max_units = static_cast<int>(lines->size());
    draft.fill = [lines, place, alike](int units) {
      return place({lines->begin(), lines->begin() + units}, alike(units));
    };
  }
  return draft;
}

}  // namespace varve::eval
