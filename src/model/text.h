#pragma once
// Text to tokens and back, by the model's own tokenizer (libllama's).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "varve/status.h"

namespace varve::model {

/// add_special: add BOS / EOS where the model asks for them. parse_special: control tokens written in the text
/// ("<|im_start|>") become those tokens instead of plain text.
Result<std::vector<int32_t>> tokenize(const Model& model, std::string_view text, bool add_special, bool parse_special);

/// The bytes of one token; may be part of a UTF-8 character. Control tokens are empty unless `special`.
Result<std::string> piece(const Model& model, int32_t token, bool special);

/// The text of a sequence, with the tokenizer's own clean-up of spaces. Control tokens are left out unless `special`.
Result<std::string> detokenize(const Model& model, std::span<const int32_t> tokens, bool special);

/// Whether the token ends a reply (EOS, EOT and their like); false for ids outside the vocabulary.
bool is_end_of_generation(const Model& model, int32_t token);

}  // namespace varve::model
