#include <algorithm>

#include "eval/random.h"
#include "eval/run/plan.h"
#include "eval/run/record.h"
#include "model/text.h"

namespace varve::eval {
namespace {

constexpr int kDraws = 32;  // for a place that no earlier slice has; the last draw is taken as it is

struct Text {
  Tokens tokens;
  std::vector<size_t> starts;  ///< of the slices so far
};

}  // namespace

Result<std::vector<Slice>> make_slices(const model::Model& model, const std::vector<Document>& documents, int length,
                                       int n, uint64_t seed) {
  const auto first = model::tokenize(model, "", true, false);
  if (!first.ok()) return first.status();
  const size_t own = static_cast<size_t>(length) - std::min(first->size(), static_cast<size_t>(length));
  std::vector<Text> texts(documents.size());
  for (size_t d = 0; d < documents.size() && d < static_cast<size_t>(n); ++d) {
    auto tokens = model::tokenize(model, documents[d].text, false, false);
    if (!tokens.ok()) return tokens.status();
    if (tokens->size() < own) {
      return resource_exhausted("the text " + documents[d].name + " has " + std::to_string(tokens->size()) +
                                " tokens; a slice of " + std::to_string(length) + " needs " + std::to_string(own));
    }
    texts[d].tokens = std::move(*tokens);
  }
  std::vector<Slice> slices;
  for (int i = 0; i < n; ++i) {
    const size_t d = static_cast<size_t>(i) % documents.size();
    Text& text = texts[d];
    Random random = Random::named(seed, documents[d].name + "/" + std::to_string(i));
    const size_t places = text.tokens.size() - own + 1;
    size_t start = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      start = static_cast<size_t>(random.below(places));
      const auto overlaps = [&](size_t other) { return start < other + own && other < start + own; };
      if (std::ranges::none_of(text.starts, overlaps)) break;
    }
    text.starts.push_back(start);
    Slice slice;
    slice.text = documents[d].name;
    slice.length = length;
    slice.tokens = *first;
    slice.tokens.insert(slice.tokens.end(), text.tokens.begin() + std::ptrdiff_t(start),
                        text.tokens.begin() + std::ptrdiff_t(start + own));
    slice.sha256 = hash_tokens(slice.tokens);
    slice.id =
        "kld/" + slice.text + "/" + std::to_string(length) + "/seed" + std::to_string(seed) + "/" + std::to_string(i);
    slices.push_back(std::move(slice));
  }
  return slices;
}

}  // namespace varve::eval
