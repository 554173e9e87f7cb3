#include <algorithm>
#include <cmath>
#include <cstring>

#include "attention/step.h"
#include "base/half.h"
#include "base/memory.h"
#include "eval/cpu/attention_case.h"

namespace varve::eval {
namespace {

constexpr int kPageTokens = 128;  // as in the profile minima
constexpr int kSinkTokens = 4;
constexpr int kFillRows = 512;

class OurAttention final : public AttentionContender {
 public:
  OurAttention(Runner& runner, const AttentionData& data, const kernels::Kernels& kernels, format::Rotation rotation,
               format::LayerFormat format, size_t bytes)
      : runner_(runner), data_(data), rotation_(std::move(rotation)) {
    const AttentionShape& s = data.shape;
    std::vector<float> theta;
    for (int p = 0; p < s.head_dim / 2; ++p) {
      theta.push_back(std::pow(1e4f, -static_cast<float>(p) / static_cast<float>(s.head_dim / 2)));
    }
    rotary_ = std::make_unique<format::RotaryTable>(theta, s.head_dim, true);
    format::LayerGeometry layer;
    layer.q_heads = s.q_heads;
    layer.kv_heads = s.kv_heads;
    layer.head = {s.head_dim, &rotation_, rotary_.get()};
    layer.scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
    const size_t plane = format::plane_layout(format, s.head_dim, kPageTokens).bytes;
    layer_bytes_ = plane * static_cast<size_t>(s.kv_heads) * static_cast<size_t>(pages());
    layers_ = std::max(1, static_cast<int>((bytes + layer_bytes_ - 1) / layer_bytes_));
    for (int l = 0; l < layers_; ++l) {
      layer.layer = l;
      geometry_.layers.push_back(layer);
    }
    const std::vector<format::LayerFormat> formats(static_cast<size_t>(layers_), format);
    layout_ = format::slot_layout(geometry_.layers, formats, kPageTokens);
    strip_layout_ = format::strip_layout(geometry_.layers, formats, kSinkTokens);
    geometry_.recent = &layout_;
    geometry_.strip = &strip_layout_;
    attention_ = std::make_unique<attention::ClassAttention>(geometry_, kernels, runner.threads());
  }

  Status fill() {
    const AttentionShape& s = data_.shape;
    strip_ = AlignedBuffer(strip_layout_.bytes);
    for (int i = 0; i < pages(); ++i) {
      slots_.emplace_back(layout_.bytes);
      if (slots_.back().data() == nullptr) return resource_exhausted("no memory for the caches of the bench");
    }
    out_.resize(s.q_size() * kFillRows);
    const int past = s.length() - 1;
    for (int at = 0; at < past; at += kFillRows) {
      if (Status status = plan(at, std::min(kFillRows, past - at)); !status.ok()) return status;
      const size_t offset = static_cast<size_t>(at) * s.row();
      attention_->append(0, data_.k.data() + offset, data_.v.data() + offset, 0, 1);
      attention_->merge(0, out_.data(), 0, 1);  // without partial(): only what is appended and sealed matters
    }
    const size_t layer_bytes = static_cast<size_t>(s.kv_heads) * layout_.layers[0].plane.bytes;
    for (int l = 1; l < layers_; ++l) {
      const auto layer = static_cast<size_t>(l);
      for (AlignedBuffer& slot : slots_) {
        std::memcpy(slot.data() + layout_.layers[layer].offset, slot.data() + layout_.layers[0].offset, layer_bytes);
      }
      if (strip_layout_.bytes == 0) continue;
      const auto heads = static_cast<size_t>(s.kv_heads);
      std::memcpy(strip_.data() + strip_layout_.sink_offset[layer], strip_.data() + strip_layout_.sink_offset[0],
                  heads * strip_layout_.sink_head_bytes[0]);
      std::memcpy(strip_.data() + strip_layout_.open_offset[layer], strip_.data() + strip_layout_.open_offset[0],
                  heads * strip_layout_.open_head_bytes[0]);
    }
    out_.assign(s.q_size(), 0);
    build();
    return plan(past, 1);
  }

  size_t layer_bytes() const override { return layer_bytes_; }

  Result<double> run(int passes) override {
    double seconds = 0;
    for (int i = 0; i < passes; ++i) {
      const auto took = runner_.compute(graph_);
      if (!took.ok()) return took.status();
      seconds += *took;
    }
    return seconds / passes / layers_;
  }
  std::span<const float> output() const override { return out_; }

  void stored(std::vector<float>* k, std::vector<float>* v) const override {
    const AttentionShape& s = data_.shape;
    const auto dim = static_cast<size_t>(s.head_dim);
    *k = data_.k;
    *v = data_.v;
    std::vector<float> k_rows(format::kTileTokens * dim), v_rows(k_rows.size());
    const int whole = s.length() / format::kTileTokens * format::kTileTokens;
    const int exact = strip_layout_.bytes != 0 ? kSinkTokens : 0;
    for (int h = 0; h < s.kv_heads; ++h) {
      for (int t = 0; t < s.length(); ++t) {
        const size_t at = static_cast<size_t>(t) * s.row() + static_cast<size_t>(h) * dim;
        if (t < exact || t >= whole) {
          for (size_t d = 0; d < dim; ++d) {
            (*k)[at + d] = half_to_float(float_to_half(data_.k[at + d]));
            (*v)[at + d] = half_to_float(float_to_half(data_.v[at + d]));
          }
          continue;
        }
        const auto in_tile = static_cast<size_t>(t % format::kTileTokens);
        if (in_tile == 0 || t == exact) {
          format::decode_tile(layout_.layers[0].format, geometry_.layers[0].head, layout_.layers[0].plane,
                              t % kPageTokens / format::kTileTokens,
                              slots_[static_cast<size_t>(t / kPageTokens)].data() + layout_.plane(0, h), k_rows.data(),
                              v_rows.data());
        }
        std::copy_n(k_rows.data() + in_tile * dim, dim, k->data() + at);
        std::copy_n(v_rows.data() + in_tile * dim, dim, v->data() + at);
      }
    }
  }

  std::vector<std::span<const uint8_t>> regions() const override {
    std::vector<std::span<const uint8_t>> out;
    for (const AlignedBuffer& slot : slots_) out.push_back({slot.data(), slot.size()});
    return out;
  }

 private:
  struct Node {
    OurAttention* self;
    int layer;
  };

  int pages() const { return (data_.shape.tokens + kPageTokens - 1) / kPageTokens; }

  Status plan(int past, int rows) {
    attention::SequenceView view;
    view.rows = rows;
    view.past = past;
    view.strip = strip_.data();
    const int used = (past + rows + kPageTokens - 1) / kPageTokens;
    for (int i = 0; i < used; ++i) {
      view.pages.push_back({slots_[static_cast<size_t>(i)].data(), &layout_, i * kPageTokens});
    }
    return attention_->plan(std::vector<attention::SequenceView>{view});
  }

  /// The three nodes of every layer, as in a step.
  void build() {
    const auto most = static_cast<size_t>(3 * layers_ + 8);
    context_ = new_graph_context(most);
    graph_ = ggml_new_graph_custom(context_.get(), most, false);
    nodes_.reserve(static_cast<size_t>(layers_));
    for (int l = 0; l < layers_; ++l) {
      nodes_.push_back({this, l});
      for (const ggml_custom_op_t fn :
           {&OurAttention::run_append, &OurAttention::run_partial, &OurAttention::run_merge}) {
        ggml_tensor* node =
            ggml_custom_4d(context_.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, fn, GGML_N_TASKS_MAX, &nodes_.back());
        node->data = &nothing_;
        ggml_build_forward_expand(graph_, node);
      }
    }
  }
  static void run_append(ggml_tensor*, int thread, int threads, void* user) {
    const auto [self, layer] = *static_cast<Node*>(user);
    const size_t last = static_cast<size_t>(self->data_.shape.length() - 1) * self->data_.shape.row();
    self->attention_->append(layer, self->data_.k.data() + last, self->data_.v.data() + last, thread, threads);
  }
  static void run_partial(ggml_tensor*, int thread, int threads, void* user) {
    const auto [self, layer] = *static_cast<Node*>(user);
    self->attention_->partial(layer, self->data_.q.data(), thread, threads);
  }
  static void run_merge(ggml_tensor*, int thread, int threads, void* user) {
    const auto [self, layer] = *static_cast<Node*>(user);
    self->attention_->merge(layer, self->out_.data(), thread, threads);
  }

  Runner& runner_;
  const AttentionData& data_;
  format::Rotation rotation_;
  std::unique_ptr<format::RotaryTable> rotary_;
  attention::ClassGeometry geometry_;
  format::SlotLayout layout_;
  format::StripLayout strip_layout_;
  size_t layer_bytes_ = 0;
  int layers_ = 0;
  AlignedBuffer strip_;
  std::vector<AlignedBuffer> slots_;
  std::unique_ptr<attention::ClassAttention> attention_;
  std::vector<float> out_;
  std::vector<Node> nodes_;
  GgmlContext context_;
  ggml_cgraph* graph_ = nullptr;
  float nothing_ = 0;  ///< data of the nodes
};

}  // namespace

Result<std::unique_ptr<AttentionContender>> our_attention(Runner& runner, const AttentionData& data,
                                                          const std::string& format, const kernels::Kernels& kernels,
                                                          size_t bytes) {
  const size_t dot = format.find('.');
  const std::string centre_name = dot == std::string::npos ? "" : format.substr(dot + 1);
  const format::Centre centre = centre_name == "post"     ? format::Centre::kPost
                                : centre_name == "rotary" ? format::Centre::kRotary
                                                          : format::Centre::kNone;
  const auto parsed = format::parse_format(format.substr(0, dot), centre);
  if (!parsed.ok()) return parsed.status();
  if (parsed->is_low_rank()) {
    return unsupported("format " + format + " is no format for recent pages, which this bench fills; see micro_attention");
  }
  auto rotation = format::Rotation::create(data.shape.head_dim, 1);
  if (!rotation.ok()) return rotation.status();
  auto out = std::make_unique<OurAttention>(runner, data, kernels, std::move(*rotation), *parsed, bytes);
  if (Status s = out->fill(); !s.ok()) return s;
  return std::unique_ptr<AttentionContender>(std::move(out));
}

}  // namespace varve::eval
