#include "model/text.h"

#include <llama.h>

#include <climits>

#include "model/ggml_guard.h"

namespace varve::model {
namespace {

Status check_token(const Model& model, int32_t token) {
  const int vocabulary = model.info().vocabulary;
  if (token >= 0 && token < vocabulary) return Status();
  return invalid_argument("token " + std::to_string(token) + " is outside the vocabulary of " +
                          std::to_string(vocabulary));
}

/// Calls fn(buffer, capacity) until the buffer is large enough; libllama answers -needed when it is not.
template <typename Buffer, typename Fn>
Status fill(Buffer& out, size_t guess, const char* what, Fn fn) {
  out.resize(guess);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int32_t n = fn(out.data(), static_cast<int32_t>(out.size()));
    if (n >= 0) {
      out.resize(static_cast<size_t>(n));
      return Status();
    }
    if (n == INT_MIN) break;
    out.resize(static_cast<size_t>(-n));
  }
  return invalid_argument(std::string(what) + ": the result is too large");
}

}  // namespace

Result<std::vector<int32_t>> tokenize(const Model& model, std::string_view text, bool add_special, bool parse_special) {
  if (text.size() > INT32_MAX / 2) {
    return invalid_argument("a text of " + std::to_string(text.size()) + " bytes is too long to tokenize at once");
  }
  const llama_vocab* vocab = model.vocab();
  std::vector<int32_t> tokens;
  const Status s = guarded("tokenize", [&] {
    return fill(tokens, text.size() + 2, "tokenize", [&](int32_t* out, int32_t n) {
      return llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), out, n, add_special, parse_special);
    });
  });
  if (!s.ok()) return s;
  return tokens;
}

Result<std::string> piece(const Model& model, int32_t token, bool special) {
  if (Status s = check_token(model, token); !s.ok()) return s;
  std::string text;
  const Status s = guarded("piece", [&] {
    return fill(text, 32, "piece", [&](char* out, int32_t n) {
      return llama_token_to_piece(model.vocab(), token, out, n, /*lstrip=*/0, special);
    });
  });
  if (!s.ok()) return s;
  return text;
}

Result<std::string> detokenize(const Model& model, std::span<const int32_t> tokens, bool special) {
  if (tokens.size() > INT32_MAX / 16) {
    return invalid_argument(std::to_string(tokens.size()) + " tokens are too many to detokenize at once");
  }
  for (const int32_t token : tokens) {
    if (Status s = check_token(model, token); !s.ok()) return s;
  }
  std::string text;
  const Status s = guarded("detokenize", [&] {
    return fill(text, tokens.size() * 8 + 32, "detokenize", [&](char* out, int32_t n) {
      return llama_detokenize(model.vocab(), tokens.data(), static_cast<int32_t>(tokens.size()), out, n,
                              /*remove_special=*/!special, /*unparse_special=*/special);
    });
  });
  if (!s.ok()) return s;
  return text;
}

bool is_end_of_generation(const Model& model, int32_t token) {
  return token >= 0 && token < model.info().vocabulary && llama_vocab_is_eog(model.vocab(), token);
}

}  // namespace varve::model
