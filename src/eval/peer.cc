#include "eval/peer.h"

#include <ggml-cpu.h>
#include <llama-memory.h>
#include <llama.h>

#include <algorithm>

#include "base/system.h"

namespace varve::eval {
namespace {

struct FreeContext {
  void operator()(llama_context* c) const { llama_free(c); }
};
struct FreePool {
  void operator()(ggml_threadpool* p) const { ggml_threadpool_free(p); }
};

Result<ggml_type> parse_type(const std::string& name) {
  for (const ggml_type t : {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
    if (name == ggml_type_name(t)) return t;
  }
  return invalid_argument("peer KV type \"" + name + "\" (known: f16, q8_0, q4_0)");
}

}  // namespace

struct Peer::Impl {
  std::shared_ptr<model::Model> model;
  std::unique_ptr<ggml_threadpool, FreePool> pool;  // outlives the context that uses it
  std::unique_ptr<llama_context, FreeContext> context;
  PeerOptions options;
  int length = 0;
  size_t vocabulary = 0;
  bool all_logits = false;
  int last_rows = 0;
};

Peer::Peer() : impl_(std::make_unique<Impl>()) {}
Peer::Peer(Peer&&) noexcept = default;
Peer& Peer::operator=(Peer&&) noexcept = default;
Peer::~Peer() = default;

Result<Peer> Peer::create(std::shared_ptr<model::Model> model, const PeerOptions& options) {
  const auto type = parse_type(options.kv_type);
  if (!type.ok()) return type.status();
  Peer peer;
  Impl& p = *peer.impl_;
  p.model = std::move(model);
  p.options = options;
  p.vocabulary = static_cast<size_t>(p.model->info().vocabulary);
  const int threads = options.threads > 0 ? options.threads : processor_count();

  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(options.context_tokens) * static_cast<uint32_t>(options.sequences);
  params.n_seq_max = static_cast<uint32_t>(options.sequences);
  params.kv_unified = false;
  params.n_batch = static_cast<uint32_t>(options.batch_tokens);
  params.n_ubatch = static_cast<uint32_t>(options.micro_batch_tokens);
  params.n_threads = threads;
  params.n_threads_batch = threads;
  params.flash_attn_type =
      options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = *type;
  params.type_v = *type;
  p.context.reset(llama_init_from_model(p.model->handle(), params));
  if (!p.context) {
    return unsupported("libllama refused a context of " + std::to_string(options.context_tokens) + " tokens with " +
                       options.kv_type + " KV and flash attention " + (options.flash_attention ? "on" : "off"));
  }
  // Without a pool of its own libllama starts and ends threads for every graph, as its own programs never do.
  ggml_threadpool_params pool = ggml_threadpool_params_default(threads);
  p.pool.reset(ggml_threadpool_new(&pool));
  llama_attach_threadpool(p.context.get(), p.pool.get(), nullptr);
  return peer;
}

Status Peer::feed(std::span<const int32_t> tokens, bool all_logits) {
  Impl& p = *impl_;
  if (all_logits && int64_t(tokens.size()) > p.options.batch_tokens) {
    return invalid_argument("logits of all " + std::to_string(tokens.size()) + " rows asked of a batch of " +
                            std::to_string(p.options.batch_tokens));
  }
  for (size_t done = 0; done < tokens.size();) {
    const size_t n = std::min(tokens.size() - done, static_cast<size_t>(p.options.batch_tokens));
    llama_batch batch = llama_batch_init(static_cast<int32_t>(n), 0, 1);
    for (size_t i = 0; i < n; ++i) {
      batch.token[i] = tokens[done + i];
      batch.pos[i] = p.length + static_cast<int32_t>(i);
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = all_logits || done + i + 1 == tokens.size();
    }
    batch.n_tokens = static_cast<int32_t>(n);
    const int rc = llama_decode(p.context.get(), batch);
    llama_batch_free(batch);
    if (rc != 0) return internal_error("llama_decode returned " + std::to_string(rc));
    p.length += static_cast<int>(n);
    done += n;
    p.last_rows = static_cast<int>(n);
  }
  p.all_logits = all_logits;
  llama_synchronize(p.context.get());
  return {};
}

void Peer::copy_first() {
  for (int s = 1; s < impl_->options.sequences; ++s) {
    llama_memory_seq_cp(llama_get_memory(impl_->context.get()), 0, s, -1, -1);
  }
}

Status Peer::feed_each(int32_t token) {
  Impl& p = *impl_;
  const int n = p.options.sequences;
  llama_batch batch = llama_batch_init(n, 0, 1);
  for (int i = 0; i < n; ++i) {
    batch.token[i] = token;
    batch.pos[i] = p.length;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = i;
    batch.logits[i] = true;
  }
  batch.n_tokens = n;
  const int rc = llama_decode(p.context.get(), batch);
  llama_batch_free(batch);
  if (rc != 0) return internal_error("llama_decode returned " + std::to_string(rc));
  ++p.length;
  p.all_logits = true;
  p.last_rows = n;
  llama_synchronize(p.context.get());
  return {};
}

std::span<const float> Peer::logits(int index) const {
  const int row = impl_->all_logits ? index : impl_->last_rows - 1;
  return {llama_get_logits_ith(impl_->context.get(), row), impl_->vocabulary};
}

Status Peer::truncate(int tokens) {
  for (int s = 0; s < impl_->options.sequences; ++s) {
    if (!llama_memory_seq_rm(llama_get_memory(impl_->context.get()), s, tokens, -1)) {
      return unsupported("libllama cannot forget tokens from " + std::to_string(tokens) + " on in this model's cache");
    }
  }
  impl_->length = std::min(impl_->length, tokens);
  return {};
}

int Peer::length() const { return impl_->length; }

size_t Peer::kv_bytes() const {
  size_t bytes = 0;
  for (const auto& [type, size] : llama_get_memory(impl_->context.get())->memory_breakdown()) bytes += size;
  return bytes;
}

}  // namespace varve::eval
