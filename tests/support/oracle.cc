#include "support/oracle.h"

#include <llama.h>

#include <algorithm>

namespace varve::testing {

void Oracle::Free::operator()(llama_context* c) const { llama_free(c); }
Oracle::~Oracle() = default;

Result<std::unique_ptr<Oracle>> Oracle::create(const model::Model& model, const Options& options) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(options.context);
  params.n_batch = static_cast<uint32_t>(options.context);
  params.n_ubatch = static_cast<uint32_t>(options.micro_batch);
  params.n_threads = options.threads;
  params.n_threads_batch = options.threads;
  params.flash_attn_type = options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.no_perf = true;
  std::unique_ptr<Oracle> oracle(new Oracle);
  oracle->context_.reset(llama_init_from_model(model.handle(), params));
  if (oracle->context_ == nullptr) return internal_error("libllama gives no context");
  oracle->vocabulary_ = model.info().vocabulary;
  return oracle;
}

Result<std::vector<float>> Oracle::feed(std::span<const int32_t> tokens) {
  std::vector<llama_token> copy(tokens.begin(), tokens.end());
  const llama_batch batch = llama_batch_get_one(copy.data(), static_cast<int32_t>(copy.size()));
  if (const int rc = llama_decode(context_.get(), batch); rc != 0) {
    return internal_error("llama_decode of " + std::to_string(tokens.size()) + " tokens at " + std::to_string(past_) +
                          " returns " + std::to_string(rc));
  }
  past_ += static_cast<int>(tokens.size());
  const float* logits = llama_get_logits_ith(context_.get(), -1);
  if (logits == nullptr) return internal_error("libllama gives no logits");
  return std::vector<float>(logits, logits + vocabulary_);
}

void Oracle::reset() {
  llama_memory_clear(llama_get_memory(context_.get()), /*data=*/false);
  past_ = 0;
}

Result<Decoded> decode_greedy(Oracle& oracle, std::span<const int32_t> prompt, int steps) {
  Decoded out;
  oracle.reset();
  std::vector<int32_t> next(prompt.begin(), prompt.end());
  for (int i = 0; i < steps; ++i) {
    Result<std::vector<float>> logits = oracle.feed(next);
    if (!logits.ok()) return logits.status();
    const auto best = std::max_element(logits->begin(), logits->end()) - logits->begin();
    next = {static_cast<int32_t>(best)};
    out.continuation.push_back(next[0]);
    out.logits.push_back(std::move(logits).value());
  }
  return out;
}

Result<Decoded> decode_forced(Oracle& oracle, std::span<const int32_t> prompt, std::span<const int32_t> continuation) {
  Decoded out;
  oracle.reset();
  std::vector<int32_t> next(prompt.begin(), prompt.end());
  for (const int32_t token : continuation) {
    Result<std::vector<float>> logits = oracle.feed(next);
    if (!logits.ok()) return logits.status();
    next = {token};
    out.continuation.push_back(token);
    out.logits.push_back(std::move(logits).value());
  }
  return out;
}

}  // namespace varve::testing
