#include "model/model.h"

#include <ggml-backend.h>
#include <llama.h>

#include <cmath>

#include "model/digest.h"
#include "model/ggml_guard.h"
#include "model/hparams.h"
#include "model/validate.h"
#include "model/weights.h"

namespace varve::model {
namespace {

/// Reads an fp32 vector of one of the files; empty when there is no such tensor.
Result<std::vector<float>> read_vector(std::span<const GgufFile> files, const std::string& name) {
  std::vector<float> values;
  for (const GgufFile& file : files) {
    const int64_t id = gguf_find_tensor(file.context(), name.c_str());
    if (id < 0) continue;
    values.resize(gguf_get_tensor_size(file.context(), id) / sizeof(float));
    const uint64_t offset = file.data_offset() + gguf_get_tensor_offset(file.context(), id);
    const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(float));
    if (Status s = file.read(offset, bytes); !s.ok()) return s;
  }
  return values;
}

Result<std::vector<LayerInfo>> describe_layers(std::span<const GgufFile> files, const HParams& h) {
  Result<std::vector<float>> factors = read_vector(files, "rope_freqs.weight");
  if (!factors.ok()) return factors.status();
  for (const float f : *factors) {
    if (!(std::isfinite(f) && f > 0)) {
      return corrupt(files[0].path() + ": rope_freqs.weight holds " + std::to_string(f) + ", must be positive");
    }
  }
  std::vector<LayerInfo> layers;
  for (int l = 0; l < h.layers; ++l) {
    const bool sliding = h.sliding[static_cast<size_t>(l)];
    LayerInfo info;
    info.layer = l;
    info.q_heads = h.heads;
    info.kv_heads = h.kv_heads;
    info.head_dim = h.head_dim;
    info.scale = h.attention_scale;
    info.window = sliding ? h.window : 0;
    info.theta = effective_theta(sliding ? h.rope_sliding : h.rope, *factors);
    info.neox = h.rope.neox;
    Result<std::vector<float>> bias = read_vector(files, "blk." + std::to_string(l) + ".attn_k.bias");
    if (!bias.ok()) return bias.status();
    double square = 0;
    for (const float b : *bias) square += static_cast<double>(b) * b;
    info.k_bias_norm = static_cast<float>(std::sqrt(square));
    layers.push_back(std::move(info));
  }
  return layers;
}

Result<ModelInfo> summarize(std::span<const GgufFile> files, const HParams& h, bool with_layers) {
  ModelInfo info;
  info.path = files[0].path();
  info.architecture = h.architecture;
  info.name = h.name;
  info.layers = h.layers;
  info.embedding = h.embedding;
  info.vocabulary = h.vocabulary;
  info.context_train = h.context_train;
  for (const GgufFile& file : files) {
    info.file_bytes += file.bytes();
    for (int64_t t = 0; t < gguf_get_n_tensors(file.context()); ++t) {
      const int64_t* ne = gguf_get_tensor_ne(file.context(), t);
      info.parameters += static_cast<uint64_t>(ne[0]) * static_cast<uint64_t>(ne[1]);
    }
  }
  Result<std::string> digest = model_digest(files);
  if (!digest.ok()) return digest.status();
  info.digest = std::move(digest).value();
  if (with_layers) {
    Result<std::vector<LayerInfo>> layers = describe_layers(files, h);
    if (!layers.ok()) return layers.status();
    info.kv_layers = std::move(layers).value();
  }
  return info;
}

/// Everything that is read and checked before libllama sees the file.
struct Header {
  HParams hparams;
  ModelInfo info;
};

Result<Header> read_header(const std::string& path, bool vocab_only) {
  Result<std::vector<GgufFile>> files = open_model_files(path);
  if (!files.ok()) return files.status();
  Result<HParams> hparams = read_hparams((*files)[0]);
  if (!hparams.ok()) return hparams.status();
  if (Status s = check_tokenizer((*files)[0]); !s.ok()) return s;
  if (!vocab_only) {
    if (Status s = check_tensors(*files, *hparams); !s.ok()) return s;
  }
  Result<ModelInfo> info = summarize(*files, *hparams, !vocab_only);
  if (!info.ok()) return info.status();
  return Header{std::move(hparams).value(), std::move(info).value()};
}

/// libllama's progress callback; an exception of the caller's function must not cross C frames.
struct Progress {
  const std::function<bool(float)>& report;
  bool cancelled = false;

  static bool call(float fraction, void* self) {
    auto& p = *static_cast<Progress*>(self);
    if (!p.report) return true;
    try {
      p.cancelled = !p.report(fraction);
    } catch (...) {
      p.cancelled = true;
    }
    return !p.cancelled;
  }
};

struct FreeModel {
  void operator()(llama_model* m) const { llama_model_free(m); }
};

size_t bytes_outside_plain_memory(const Weights& w) {
  size_t total = 0;
  const auto add = [&](const ggml_tensor* t) {
    if (t != nullptr && !ggml_backend_buffer_is_host(t->buffer)) total += ggml_nbytes(t);
  };
  add(w.output);
  for (const LayerWeights& l : w.layers) {
    for (const ggml_tensor* t : {l.wq, l.wk, l.wv, l.wo, l.gate, l.up, l.down}) add(t);
  }
  return total;
}

}  // namespace

struct Model::Impl {
  ModelInfo info;
  HParams hparams;
  Weights weights;
  std::unique_ptr<llama_model, FreeModel> model;
  size_t repacked_bytes = 0;
};

Model::Model() : impl_(std::make_unique<Impl>()) {}
Model::~Model() = default;

Result<std::shared_ptr<Model>> Model::load(const std::string& path, const LoadOptions& options) {
  Result<Header> header = read_header(path, options.vocab_only);
  if (!header.ok()) return header.status();

  std::shared_ptr<Model> model(new Model);
  Impl& impl = *model->impl_;
  impl.info = std::move(header->info);
  impl.hparams = std::move(header->hparams);

  Progress progress{options.progress};
  const Status loaded = guarded(path, [&] {
    ggml_backend_dev_t no_devices[] = {nullptr};  // the CPU is implied
    llama_model_params params = llama_model_default_params();
    params.devices = no_devices;
    params.n_gpu_layers = 0;
    params.load_mode = LLAMA_LOAD_MODE_MMAP;
    params.use_extra_bufts = options.repack;
    params.vocab_only = options.vocab_only;
    params.progress_callback = Progress::call;
    params.progress_callback_user_data = &progress;
    impl.model.reset(llama_model_load_from_file(path.c_str(), params));
    if (progress.cancelled) return Status(StatusCode::kCancelled, path + ": loading was cancelled");
    if (impl.model == nullptr) return corrupt(path + ": libllama refuses the file: " + guarded_log());
    if (options.vocab_only) return Status();
    Result<Weights> weights = collect_weights(*impl.model, impl.hparams);
    if (!weights.ok()) return weights.status();
    impl.weights = std::move(weights).value();
    impl.repacked_bytes = bytes_outside_plain_memory(impl.weights);
    return Status();
  });
  if (!loaded.ok()) return loaded;
  return model;
}

Result<ModelInfo> Model::describe(const std::string& path) {
  Result<Header> header = read_header(path, false);
  if (!header.ok()) return header.status();
  return std::move(header->info);
}

const ModelInfo& Model::info() const { return impl_->info; }
const llama_vocab* Model::vocab() const { return llama_model_get_vocab(impl_->model.get()); }
llama_model* Model::handle() const { return impl_->model.get(); }
const HParams& Model::hparams() const { return impl_->hparams; }
const Weights& Model::weights() const { return impl_->weights; }
size_t Model::repacked_bytes() const { return impl_->repacked_bytes; }

}  // namespace varve::model
