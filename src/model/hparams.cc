#include "model/hparams.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/arch/architecture.h"
#include "model/model.h"

namespace varve::model {
namespace {

constexpr std::array kHeadDims{64, 80, 96, 128, 192, 256};  // what the page formats and kernels are built for
constexpr int64_t kMostLayers = 512;                        // LLAMA_MAX_LAYERS

std::string join(const std::vector<std::string>& names) {
  std::string all;
  for (const auto& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

/// Reads keys of one architecture ("<arch>.<key>"); the first error sticks and makes the rest no-ops.
class Reader {
 public:
  Reader(const GgufFile& file, std::string architecture) : file_(file), prefix_(std::move(architecture) + ".") {}

  const Status& status() const { return status_; }
  bool has(const std::string& key) const { return file_.has(prefix_ + key); }

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  void refuse(const std::string& key, const std::string& why) {
    fail(unsupported(file_.path() + ": " + prefix_ + key + " " + why));
  }

  int integer(const std::string& key, int64_t least, int64_t most, bool required, int fallback = 0) {
    uint32_t value = static_cast<uint32_t>(fallback);
    if (!status_.ok()) return fallback;
    const bool present = has(key);
    if (Status s = file_.get(prefix_ + key, &value, required); !s.ok()) {
      fail(std::move(s));
      return fallback;
    }
    if (present) check_range(key, value, least, most);
    return static_cast<int>(value);
  }

  /// A count that may be given once or per layer; per-layer counts must agree.
  int count_or_array(const std::string& key, int layers, int64_t most, bool required, int fallback = 0) {
    const std::string full = prefix_ + key;
    const gguf_type type = file_.array_type(full);
    if (type == GGUF_TYPE_COUNT) return integer(key, 1, most, required, fallback);
    if (!status_.ok()) return fallback;
    const size_t n = file_.array_size(full);
    if ((type != GGUF_TYPE_UINT32 && type != GGUF_TYPE_INT32) || n != static_cast<size_t>(layers)) {
      fail(corrupt(file_.path() + ": " + full + " is an array of " + std::to_string(n) + " " + gguf_type_name(type) +
                   ", expected " + std::to_string(layers) + " u32"));
      return fallback;
    }
    const auto* values = static_cast<const uint32_t*>(gguf_get_arr_data(file_.context(), file_.find(full)));
    if (std::any_of(values, values + n, [&](uint32_t v) { return v != values[0]; })) {
      refuse(key, "differs from layer to layer");
      return fallback;
    }
    check_range(key, values[0], 1, most);
    return static_cast<int>(values[0]);
  }

  float real(const std::string& key, double least, double most, bool required, float fallback = 0) {
    float value = fallback;
    if (!status_.ok()) return fallback;
    if (Status s = file_.get(prefix_ + key, &value, required); !s.ok()) {
      fail(std::move(s));
      return fallback;
    }
    if (!(value >= least && value <= most)) {
      fail(corrupt(file_.path() + ": " + prefix_ + key + " is " + std::to_string(value) + ", must be between " +
                   std::to_string(least) + " and " + std::to_string(most)));
    }
    return value;
  }

  std::string text(const std::string& key, std::string fallback) {
    if (status_.ok()) fail(file_.get(prefix_ + key, &fallback, false));
    return fallback;
  }

  bool flag(const std::string& key, bool fallback) {
    if (status_.ok()) fail(file_.get(prefix_ + key, &fallback, false));
    return fallback;
  }

  const GgufFile& file() const { return file_; }
  const std::string& prefix() const { return prefix_; }

 private:
  void check_range(const std::string& key, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    fail(corrupt(file_.path() + ": " + prefix_ + key + " is " + std::to_string(value) + ", must be between " +
                 std::to_string(least) + " and " + std::to_string(most)));
  }

  const GgufFile& file_;
  std::string prefix_;
  Status status_;
};

RopeParams read_rope(Reader& r, const HParams& h, bool neox) {
  RopeParams rope;
  rope.neox = neox;
  rope.n_rot = r.integer("rope.dimension_count", 2, 65536, false, h.head_dim);
  rope.original_context =
      r.integer("rope.scaling.original_context_length", 1, int64_t{1} << 30, false, h.context_train);
  rope.base = r.real("rope.freq_base", 1.0, 1e12, false, 10000.0f);
  // The older key is read only when the newer one is missing.
  const char* factor_key = r.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  const float factor = r.real(factor_key, 0.0, 1e6, false, 0.0f);
  rope.frequency_scale = factor == 0.0f ? 1.0f : 1.0f / factor;
  rope.attention_factor = r.real("rope.scaling.attn_factor", 1e-6, 1e6, false, 1.0f);

  const std::string type = r.text("rope.scaling.type", "linear");
  if (type == "none") {
    rope.frequency_scale = 1.0f;
  } else if (type == "yarn") {
    set_yarn(rope, rope.attention_factor);
  } else if (type != "linear") {
    r.refuse("rope.scaling.type", "'" + type + "' is not supported (supported: none, linear, yarn)");
  }
  if (rope.n_rot % 2 != 0 || rope.n_rot > h.head_dim) {
    r.fail(corrupt(r.file().path() + ": " + r.prefix() + "rope.dimension_count is " + std::to_string(rope.n_rot) +
                   ", must be even and at most the head dimension " + std::to_string(h.head_dim)));
  }
  return rope;
}

/// Which layers slide: an array of flags, or every layer but each n-th (n = 6 unless given).
void read_window(Reader& r, HParams& h) {
  h.sliding.assign(static_cast<size_t>(h.layers), false);
  h.window = r.integer("attention.sliding_window", 0, int64_t{1} << 30, false, 0);
  if (h.window == 0) return;
  const std::string key = r.prefix() + "attention.sliding_window_pattern";
  const gguf_type type = r.file().array_type(key);
  if (type == GGUF_TYPE_COUNT) {
    const int pattern = r.integer("attention.sliding_window_pattern", 0, kMostLayers, false, 6);
    for (int i = 0; i < h.layers; ++i) {
      h.sliding[static_cast<size_t>(i)] = pattern == 0 || i % pattern < pattern - 1;
    }
    return;
  }
  const size_t n = r.file().array_size(key);
  if ((type != GGUF_TYPE_BOOL && type != GGUF_TYPE_UINT32 && type != GGUF_TYPE_INT32) ||
      n != static_cast<size_t>(h.layers)) {
    r.fail(corrupt(r.file().path() + ": " + key + " is an array of " + std::to_string(n) + " " + gguf_type_name(type) +
                   ", expected " + std::to_string(h.layers) + " flags"));
    return;
  }
  const void* data = gguf_get_arr_data(r.file().context(), r.file().find(key));
  for (size_t i = 0; i < n; ++i) {
    h.sliding[i] =
        type == GGUF_TYPE_BOOL ? static_cast<const int8_t*>(data)[i] != 0 : static_cast<const uint32_t*>(data)[i] != 0;
  }
}

/// Things libllama would accept for these architectures and our graphs do not compute.
void refuse_variants(Reader& r, const HParams& h) {
  if (const int experts = r.integer("expert_count", 0, 65536, false, 0); experts > 0) {
    r.refuse("expert_count", "is " + std::to_string(experts) + ": mixture-of-experts models are not supported");
  }
  r.integer("expert_used_count", 0, 0, false, 0);
  r.integer("expert_group_count", 0, 0, false, 0);
  if (r.integer("nextn_predict_layers", 0, kMostLayers, false, 0) > 0) {
    r.refuse("nextn_predict_layers", "is not 0: multi-token prediction layers are not supported");
  }
  if (!r.flag("attention.causal", true)) r.refuse("attention.causal", "is false: only causal models are supported");
  const auto same = [&](const char* key, int expected) {
    if (const int v = r.integer(key, 1, 65536, false, expected); v != expected) {
      r.refuse(key, "is " + std::to_string(v) + ", only " + std::to_string(expected) + " is supported");
    }
  };
  same("attention.value_length", h.head_dim);
  same("attention.key_length_swa", h.head_dim);
  same("attention.value_length_swa", h.head_dim);
  same("rope.dimension_count_swa", h.rope.n_rot);
  same("embedding_length_out", h.embedding);
}

}  // namespace

Result<HParams> read_hparams(const GgufFile& file) {
  HParams h;
  if (Status s = file.get("general.architecture", &h.architecture, true); !s.ok()) return s;
  const Architecture* architecture = find_architecture(h.architecture);
  if (architecture == nullptr) {
    return unsupported(file.path() + ": architecture '" + h.architecture +
                       "' is not supported (supported: " + join(supported_architectures()) + ")");
  }
  if (Status s = file.get("general.name", &h.name, false); !s.ok()) return s;

  Reader r(file, h.architecture);
  h.vocabulary = static_cast<int>(std::min<size_t>(file.array_size("tokenizer.ggml.tokens"), INT32_MAX));
  h.layers = r.integer("block_count", 1, kMostLayers, true);
  h.context_train = r.integer("context_length", 1, int64_t{1} << 30, true);
  h.embedding = r.integer("embedding_length", 1, 1 << 20, true);
  h.heads = r.count_or_array("attention.head_count", h.layers, 4096, true);
  h.kv_heads = r.count_or_array("attention.head_count_kv", h.layers, 4096, false, h.heads);
  h.feed_forward = r.count_or_array("feed_forward_length", h.layers, 1 << 24, true);
  if (!r.status().ok()) return r.status();
  if (h.heads % h.kv_heads != 0) {
    return corrupt(file.path() + ": " + std::to_string(h.heads) + " query heads are not divisible by " +
                   std::to_string(h.kv_heads) + " KV heads");
  }
  h.head_dim = r.integer("attention.key_length", 1, 65536, false, h.embedding / h.heads);
  if (!r.status().ok()) return r.status();
  if (std::find(kHeadDims.begin(), kHeadDims.end(), h.head_dim) == kHeadDims.end()) {
    return unsupported(file.path() + ": head dimension " + std::to_string(h.head_dim) +
                       " is not supported (supported: 64, 80, 96, 128, 192, 256)");
  }
  h.rms_eps = r.real("attention.layer_norm_rms_epsilon", 1e-12, 1.0, true);
  h.attention_scale = 1.0f / std::sqrt(static_cast<float>(h.head_dim));
  h.rope = read_rope(r, h, architecture->neox);
  h.sliding.assign(static_cast<size_t>(h.layers), false);
  if (architecture->sliding) read_window(r, h);
  // Sliding layers have their own base and are not stretched by the scaling factor.
  h.rope_sliding = h.rope;
  h.rope_sliding.frequency_scale = 1.0f;
  h.rope_sliding.base = architecture->sliding ? r.real("rope.freq_base_swa", 1.0, 1e12, false, 10000.0f) : h.rope.base;
  if (architecture->sliding) h.logit_softcap = r.real("final_logit_softcapping", 0.0, 1e6, false, 0.0f);
  refuse_variants(r, h);
  if (!r.status().ok()) return r.status();
  if (architecture->adjust != nullptr) architecture->adjust(h);
  if (architecture->full_rotation && h.rope.n_rot != h.head_dim) {
    return unsupported(file.path() + ": " + h.architecture + " with rope.dimension_count " +
                       std::to_string(h.rope.n_rot) + " and head dimension " + std::to_string(h.head_dim) +
                       " is not supported (they must be equal)");
  }
  return h;
}

}  // namespace varve::model
