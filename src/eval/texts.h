#pragma once
// The real documents of an evaluation: the texts of the manifest, as `varve pull texts` left them in a directory.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "eval/tasks/text_tokens.h"
#include "varve/status.h"

namespace varve::eval {

class Texts {
 public:
  explicit Texts(std::filesystem::path directory) : directory_(std::move(directory)) {}

  /// Keys of the manifest's texts; `prose`: only those that are running prose, fit to hide needles in.
  static std::vector<std::string> names(bool prose = false);

  /// The whole text, checked against the manifest's SHA-256. kInvalidArgument lists the keys for an unknown one;
  /// kNotFound says how to fetch it; kCorrupt when the file is not the manifest's.
  Result<Document> load(std::string_view name) const;

  /// `tokens` tokens at most, and at most one line less, of the text from the beginning of a line that the seed
  /// chooses. kResourceExhausted with both numbers when the whole text is shorter.
  Result<std::string> slice(std::string_view name, uint64_t seed, const CountTokens& count_tokens, int tokens) const;

 private:
  std::filesystem::path directory_;
};

/// As Texts::slice, of any text.
Result<std::string> slice(const Document& document, uint64_t seed, const CountTokens& count_tokens, int tokens);

}  // namespace varve::eval
