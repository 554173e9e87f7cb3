#pragma once
// Which tokens of a prompt are a given text: the spans that `--anchor` and `--system` mark.

#include <span>
#include <string>

#include "model/model.h"
#include "varve/status.h"

namespace varve::cli {

struct TokenSpan {
  int begin = 0, end = 0;
};

/// The tokens that hold the first occurrence of `text` in the prompt from byte `from` on, those that hold it in part
/// included; moves `from` behind it. kNotFound when the tokenizer does not give the text back.
Result<TokenSpan> find_text(const model::Model& model, std::span<const int32_t> prompt, const std::string& text,
                            size_t& from);

}  // namespace varve::cli
