#include "cli/anchors.h"

#include <algorithm>
#include <vector>

#include "model/text.h"

namespace varve::cli {

Result<TokenSpan> find_text(const model::Model& model, std::span<const int32_t> prompt, const std::string& text,
                            size_t& from) {
  std::string whole;
  std::vector<size_t> starts;  // of each token in `whole`
  for (const int32_t token : prompt) {
    const auto piece = model::piece(model, token, true);
    if (!piece.ok()) return piece.status();
    starts.push_back(whole.size());
    whole += *piece;
  }
  const size_t at = text.empty() ? std::string::npos : whole.find(text, from);
  if (at == std::string::npos) {
    return not_found("a text of " + std::to_string(text.size()) + " bytes is not in the prompt's " +
                     std::to_string(whole.size()) + " bytes as the tokenizer gives them back");
  }
  from = at + text.size();
  const auto begin = std::upper_bound(starts.begin(), starts.end(), at) - 1;
  const auto end = std::lower_bound(begin, starts.end(), at + text.size());
  return TokenSpan{int(begin - starts.begin()), int(end - starts.begin())};
}

}  // namespace varve::cli
