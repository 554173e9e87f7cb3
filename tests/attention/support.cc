#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "format/lr/encode.h"

namespace varve::attention::test {

LayerFormat format_of(const std::string& name, Centre centre) {
  auto format = format::parse_format(name, centre);
  EXPECT_TRUE(format.ok()) << format.status().message();
  return *format;
}

TestClass::TestClass(const ClassSpec& spec) : spec_(spec) {
  rotation_ = std::make_unique<format::Rotation>(*format::Rotation::create(spec.head_dim, 0x5eed));
  if (spec.n_rot > 0) {
    std::vector<float> theta;
    for (int p = 0; p < spec.n_rot / 2; ++p) {
      theta.push_back(std::pow(spec.theta_base, -2.0f * static_cast<float>(p) / static_cast<float>(spec.n_rot)));
    }
    rotary_ = std::make_unique<format::RotaryTable>(theta, spec.head_dim, spec.neox);
  }
  for (size_t i = 0; i < spec.tiers[0].size(); ++i) {
    LayerGeometry layer;
    layer.layer = static_cast<int>(2 * i + 1);  // model indices need not be ordinals
    layer.q_heads = spec.q_heads;
    layer.kv_heads = spec.kv_heads;
    layer.head = {spec.head_dim, rotation_.get(), rotary_.get()};
    layer.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
    layer.softcap = spec.softcap;
    layer.window = spec.window;
    geometry_.layers.push_back(layer);
  }
  for (const auto& formats : spec.tiers) {
    slots_.push_back(format::slot_layout(geometry_.layers, formats, spec.page_tokens));
  }
  strip_ = format::strip_layout(geometry_.layers, spec.tiers[0], spec.sink_tokens);
  geometry_.recent = slots_.data();
  geometry_.strip = &strip_;
  geometry_.route = spec.route;
}

TestSequence::TestSequence(const TestClass& cls, int tokens, uint32_t seed, float bias)
    : cls_(&cls), tokens_(tokens), strip_(cls.strip().bytes) {
  // Sums of four bytes are close enough to Gaussian and far cheaper than the real thing.
  std::mt19937 random(seed);
  const auto gaussian = [&] {
    const uint32_t x = random();
    const int sum = static_cast<int>((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24));
    return static_cast<float>(sum - 510) / 147.8f;
  };
  const auto dim = static_cast<size_t>(cls.spec().head_dim);
  const auto kv = static_cast<size_t>(cls.spec().kv_heads), heads = static_cast<size_t>(cls.spec().q_heads);
  const auto n = static_cast<size_t>(tokens);
  for (size_t i = 0; i < cls.layers().size(); ++i) {
    LayerRows& rows = rows_.emplace_back();
    rows.k.resize(n * kv * dim);
    rows.v.resize(n * kv * dim);
    rows.q.resize(n * heads * dim);
    std::vector<float> offset(kv * dim);
    for (float& x : offset) x = bias * gaussian();
    for (size_t j = 0; j < rows.k.size(); ++j) rows.k[j] = gaussian() + offset[j % (kv * dim)];
    for (float& x : rows.v) x = gaussian();
    for (float& x : rows.q) x = gaussian();
    if (cls.rotary() == nullptr) continue;
    std::vector<float> turns;  // cos, sin of every pair: RotaryTable::turn per head would compute them again
    for (size_t t = 0; t < n; ++t) {
      turns.clear();
      for (int p = 0; p < cls.rotary()->pairs(); ++p) {
        const double angle = static_cast<double>(cls.rotary()->theta()[p]) * static_cast<double>(t);
        turns.push_back(static_cast<float>(std::cos(angle)));
        turns.push_back(static_cast<float>(std::sin(angle)));
      }
      const auto turn = [&](float* row) {
        for (int p = 0; p < cls.rotary()->pairs(); ++p) {
          float& x = row[cls.rotary()->first(p)];
          float& y = row[cls.rotary()->second(p)];
          const float c = turns[2 * static_cast<size_t>(p)], s = turns[2 * static_cast<size_t>(p) + 1];
          const float turned = x * c - y * s;
          y = x * s + y * c;
          x = turned;
        }
      };
      for (size_t h = 0; h < kv; ++h) turn(rows.k.data() + (t * kv + h) * dim);
      for (size_t h = 0; h < heads; ++h) turn(rows.q.data() + (t * heads + h) * dim);
    }
  }
}

std::vector<float> TestSequence::half_rows(const std::vector<float>& rows, int kv_head, int first, int n) const {
  const auto dim = static_cast<size_t>(cls_->spec().head_dim);
  const auto kv = static_cast<size_t>(cls_->spec().kv_heads);
  std::vector<float> out(static_cast<size_t>(n) * dim);
  for (size_t t = 0; t < static_cast<size_t>(n); ++t) {
    const float* row = rows.data() + ((static_cast<size_t>(first) + t) * kv + static_cast<size_t>(kv_head)) * dim;
    for (size_t d = 0; d < dim; ++d) out[t * dim + d] = half_to_float(float_to_half(row[d]));
  }
  return out;
}

void TestSequence::copy_rows(const TestSequence& other, int tokens) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const auto copy = [&](const std::vector<float>& from, int heads, std::vector<float>& to) {
      std::copy_n(from.begin(), tokens * heads * cls_->spec().head_dim, to.begin());
    };
    copy(other.rows_[i].k, cls_->spec().kv_heads, rows_[i].k);
    copy(other.rows_[i].v, cls_->spec().kv_heads, rows_[i].v);
    copy(other.rows_[i].q, cls_->spec().q_heads, rows_[i].q);
  }
}

void TestSequence::reserve(int tokens) {
  const int page_tokens = cls_->spec().page_tokens;
  while (static_cast<int>(pages_.size()) * page_tokens < tokens) {
    Page& page = pages_.emplace_back();
    page.bytes = AlignedBuffer(cls_->slot(0).bytes);
    std::memset(page.bytes.data(), 0xA5, page.bytes.size());  // a freed slot's content
  }
}

void TestSequence::fill(int past, const std::vector<int>& tier_of) {
  const int page_tokens = cls_->spec().page_tokens;
  reserve(past);
  for (int i = 0; i < pages(); ++i) {
    Page& page = pages_[static_cast<size_t>(i)];
    if ((i + 1) * page_tokens <= past) {
      page.tier = tier_of[static_cast<size_t>(i) % tier_of.size()];
      page.bytes = AlignedBuffer(cls_->slot(page.tier).bytes);
    }
    fill_page(i, past);
  }
  fill_strip(past);
}

void TestSequence::fill_page(int index, int past) {
  const int page_tokens = cls_->spec().page_tokens;
  const int start = index * page_tokens;
  const format::SlotLayout& layout = cls_->slot(tier(index));
  const size_t dim = static_cast<size_t>(cls_->spec().head_dim);
  std::vector<float> scratch(2 * kTileTokens * dim);
  for (int i = 0; i < static_cast<int>(cls_->layers().size()); ++i) {
    const format::LayerSlot& slot = layout.layers[static_cast<size_t>(i)];
    const LayerGeometry& layer = cls_->layers()[static_cast<size_t>(i)];
    const LayerRows& rows = rows_[static_cast<size_t>(i)];
    if (slot.format.is_low_rank()) {
      fill_block(index, i);
      continue;
    }
    for (int h = 0; h < layer.kv_heads; ++h) {
      uint8_t* plane = page(index) + layout.plane(i, h);
      const int n = std::min(page_tokens, past - start);
      if (!cls_->owns_strip(i) && format::is_direct(slot.format)) {
        for (int t = 0; t < n; ++t) {
          const std::vector<float> k = half_rows(rows.k, h, start + t, 1), v = half_rows(rows.v, h, start + t, 1);
          uint8_t* to_k = plane + slot.plane.k_tile(t / kTileTokens) + static_cast<size_t>(t % kTileTokens) * 2 * dim;
          uint8_t* to_v = plane + slot.plane.v_tile(t / kTileTokens) + static_cast<size_t>(t % kTileTokens) * 2 * dim;
          for (size_t d = 0; d < dim; ++d) {
            const half_t hk = float_to_half(k[d]), hv = float_to_half(v[d]);
            std::memcpy(to_k + 2 * d, &hk, 2);
            std::memcpy(to_v + 2 * d, &hv, 2);
          }
        }
        continue;
      }
      // An open page froze its centre at its first tile; a page that was converted knows its true mean. Sinks that
      // live in the strip carry no weight.
      const int exact = start == 0 && cls_->owns_strip(i) ? cls_->spec().sink_tokens : 0;
      const int tiles = n / kTileTokens;
      const int mean_tokens = tier(index) == 0 ? kTileTokens : page_tokens;
      if (tiles == 0) continue;
      const std::vector<float> k = half_rows(rows.k, h, start, tiles * kTileTokens);
      const std::vector<float> v = half_rows(rows.v, h, start, tiles * kTileTokens);
      format::write_centre(slot.format, layer.head, k.data() + static_cast<size_t>(exact) * dim, mean_tokens - exact,
                           exact, plane);
      for (int tile = 0; tile < tiles; ++tile) {
        const size_t at = static_cast<size_t>(tile) * kTileTokens * dim;
        format::encode_tile(slot.format, layer.head, slot.plane, cls_->geometry().encode, tile, k.data() + at,
                            v.data() + at, scratch.data(), plane);
      }
    }
  }
}

void TestSequence::fill_block(int index, int ordinal) {
  const LayerGeometry& layer = cls_->layers()[static_cast<size_t>(ordinal)];
  const format::LayerSlot& slot = cls_->slot(tier(index)).layers[static_cast<size_t>(ordinal)];
  const format::BlockShape shape = format::block_shape(layer, slot.format, cls_->spec().page_tokens);
  const int start = index * shape.tokens;
  const size_t dim = static_cast<size_t>(shape.head_dim), row = static_cast<size_t>(shape.kv_heads) * dim;
  std::vector<float> joint[2];
  for (std::vector<float>& side : joint) side.resize(static_cast<size_t>(shape.tokens) * row);
  const LayerRows& rows = rows_[static_cast<size_t>(ordinal)];
  for (int h = 0; h < shape.kv_heads; ++h) {
    std::vector<float> k = half_rows(rows.k, h, start, shape.tokens);
    const std::vector<float> v = half_rows(rows.v, h, start, shape.tokens);
    for (size_t t = 0; t < static_cast<size_t>(shape.tokens); ++t) {
      if (!shape.format.rotated) layer.head.rotary->turn(k.data() + t * dim, -static_cast<int>(t));
      const size_t to = t * row + static_cast<size_t>(h) * dim;
      std::copy_n(k.data() + t * dim, dim, joint[0].data() + to);
      std::copy_n(v.data() + t * dim, dim, joint[1].data() + to);
    }
  }
  const format::LowRankOptions& options = cls_->geometry().encode.low_rank;
  std::vector<float> scratch(format::encode_scratch_floats(shape, options));
  const int sinks = start == 0 && cls_->owns_strip(ordinal) ? cls_->spec().sink_tokens : 0;
  format::encode_block(shape, options, {}, sinks, joint[0].data(), joint[1].data(), kernels::available().front()->gemm,
                       scratch.data(), page(index) + slot.offset);
}

void TestSequence::decode_page_tile(int index, int ordinal, int kv_head, int tile, float* k, float* v) const {
  const LayerGeometry& layer = cls_->layers()[static_cast<size_t>(ordinal)];
  const format::SlotLayout& layout = cls_->slot(tier(index));
  const format::LayerSlot& slot = layout.layers[static_cast<size_t>(ordinal)];
  if (!slot.format.is_low_rank()) {
    format::decode_tile(slot.format, layer.head, slot.plane, tile, page(index) + layout.plane(ordinal, kv_head), k, v);
    return;
  }
  const format::BlockShape shape = format::block_shape(layer, slot.format, layout.page_tokens);
  format::decode_block_tile(shape, page(index) + slot.offset, kv_head, tile, k, v);
  if (shape.format.rotated) return;
  for (int t = 0; t < kTileTokens; ++t) layer.head.rotary->turn(k + t * shape.head_dim, tile * kTileTokens + t);
}

void TestSequence::fill_strip(int past) {
  const format::StripLayout& layout = cls_->strip();
  const int open_start = past / kTileTokens * kTileTokens;
  for (int i = 0; i < static_cast<int>(cls_->layers().size()); ++i) {
    if (!cls_->owns_strip(i)) continue;
    for (int h = 0; h < cls_->spec().kv_heads; ++h) {
      const auto at = static_cast<size_t>(i), head = static_cast<size_t>(h);
      uint8_t* to = nullptr;
      const auto copy = [&](const std::vector<float>& rows, int first, int n) {
        for (const float x : half_rows(rows, h, first, n)) {
          const half_t half = float_to_half(x);
          std::memcpy(to, &half, 2);
          to += 2;
        }
      };
      const LayerRows& rows = rows_[at];
      for (const bool value : {false, true}) {
        const std::vector<float>& side = value ? rows.v : rows.k;
        to = strip_.data() + layout.sink_offset[at] + head * layout.sink_head_bytes[at] +
             (value ? layout.sink_head_bytes[at] / 2 : 0);
        copy(side, 0, std::min(layout.sink_tokens, past));
        to = strip_.data() + layout.open_offset[at] + head * layout.open_head_bytes[at] +
             (value ? layout.open_head_bytes[at] / 2 : 0);
        copy(side, open_start, past - open_start);
      }
    }
  }
}

void TestSequence::drop_below(int position) { first_page_ = std::max(0, position / cls_->spec().page_tokens); }

SequenceView TestSequence::view(int row_begin, int past, int rows) {
  reserve(past + rows);
  SequenceView view;
  view.row_begin = row_begin;
  view.rows = rows;
  view.past = past;
  view.strip = strip_.data();
  for (int i = first_page_; i < pages(); ++i) {
    view.pages.push_back({page(i), &cls_->slot(tier(i)), i * cls_->spec().page_tokens});
  }
  return view;
}

HeadRows TestSequence::decoded(int ordinal, int kv_head, int past) const {
  const LayerGeometry& layer = cls_->layers()[static_cast<size_t>(ordinal)];
  const LayerRows& rows = rows_[static_cast<size_t>(ordinal)];
  const size_t dim = static_cast<size_t>(layer.head.head_dim);
  const int page_tokens = cls_->spec().page_tokens;
  const bool strip = cls_->owns_strip(ordinal);
  // A direct layer's open tile is f16 rows in its page, which are the true rows, too.
  HeadRows out{half_rows(rows.k, kv_head, 0, tokens_), half_rows(rows.v, kv_head, 0, tokens_)};
  std::vector<float> k(kTileTokens * dim), v(kTileTokens * dim);
  for (int tile = first_page_ * page_tokens; tile + kTileTokens <= past; tile += kTileTokens) {
    const int index = tile / page_tokens;
    decode_page_tile(index, ordinal, kv_head, tile % page_tokens / kTileTokens, k.data(), v.data());
    const auto sinks =
        static_cast<ptrdiff_t>(strip && tile == 0 ? static_cast<size_t>(cls_->spec().sink_tokens) * dim : 0);
    const auto at = static_cast<ptrdiff_t>(static_cast<size_t>(tile) * dim);
    std::copy(k.begin() + sinks, k.end(), out.k.begin() + at + sinks);
    std::copy(v.begin() + sinks, v.end(), out.v.begin() + at + sinks);
  }
  return out;
}

std::vector<double> TestSequence::weights(const HeadRows& rows, int ordinal, int position, int q_head,
                                          int* first_position) const {
  const LayerGeometry& layer = cls_->layers()[static_cast<size_t>(ordinal)];
  const size_t dim = static_cast<size_t>(layer.head.head_dim);
  const size_t q_row = static_cast<size_t>(position) * static_cast<size_t>(layer.q_heads) + static_cast<size_t>(q_head);
  const float* q = rows_[static_cast<size_t>(ordinal)].q.data() + q_row * dim;
  const int first = layer.window > 0 ? std::max(0, position - layer.window + 1) : 0;
  std::vector<double> p;
  for (int t = first; t <= position; ++t) {
    const float* k = rows.k.data() + static_cast<size_t>(t) * dim;
    double score = 0;
    for (size_t d = 0; d < dim; ++d) score += static_cast<double>(q[d]) * static_cast<double>(k[d]);
    score *= static_cast<double>(layer.scale);
    const double cap = static_cast<double>(layer.softcap);
    p.push_back(cap > 0 ? cap * std::tanh(score / cap) : score);
  }
  const double max = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& x : p) sum += x = std::exp(x - max);
  for (double& x : p) x /= sum;
  *first_position = first;
  return p;
}

std::vector<double> TestSequence::expected(const HeadRows& rows, int ordinal, int position, int q_head) const {
  const size_t dim = static_cast<size_t>(cls_->spec().head_dim);
  int first = 0;
  const std::vector<double> p = weights(rows, ordinal, position, q_head, &first);
  std::vector<double> out(dim, 0.0);
  for (int t = first; t <= position; ++t) {
    const float* v = rows.v.data() + static_cast<size_t>(t) * dim;
    for (size_t d = 0; d < dim; ++d) out[d] += p[static_cast<size_t>(t - first)] * static_cast<double>(v[d]);
  }
  return out;
}

StepOutput run_step(ClassAttention& attention, const std::vector<Part>& parts, int threads, const MassRequest& mass) {
  std::vector<SequenceView> views;
  int rows = 0;
  for (const Part& part : parts) {
    views.push_back(part.sequence->view(rows, part.past, part.rows));
    views.back().full_rows = part.full_rows;
    views.back().route = part.route;
    for (PageView& page : views.back().pages) {
      const int page_tokens = page.layout->page_tokens;
      if (page.start + page_tokens <= part.prefix_tokens) page.slot = part.prefix->page(page.start / page_tokens);
    }
    rows += part.rows;
  }
  const Status status = attention.plan(views, mass);
  EXPECT_TRUE(status.ok()) << status.message();
  const TestClass& cls = parts.front().sequence->cls();
  const ClassSpec& spec = cls.spec();
  const size_t kv_row = static_cast<size_t>(spec.kv_heads * spec.head_dim);
  const size_t q_row = static_cast<size_t>(spec.q_heads * spec.head_dim);
  StepOutput output;
  std::barrier barrier(threads);
  for (size_t i = 0; i < cls.layers().size(); ++i) {
    std::vector<float> k, v, q;
    for (const Part& part : parts) {
      const LayerRows& from = part.sequence->rows(static_cast<int>(i));
      const auto add = [&](const std::vector<float>& all, size_t row, std::vector<float>& to) {
        const auto begin = all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(part.past) * row);
        to.insert(to.end(), begin, begin + static_cast<ptrdiff_t>(static_cast<size_t>(part.rows) * row));
      };
      add(from.k, kv_row, k);
      add(from.v, kv_row, v);
      add(from.q, q_row, q);
    }
    std::vector<float>& out = output.emplace_back(static_cast<size_t>(rows) * q_row, -12345.0f);
    const int layer = cls.layers()[i].layer;
    const auto work = [&](int thread) {
      attention.append(layer, k.data(), v.data(), thread, threads);
      attention.route(layer, q.data(), thread, threads);
      barrier.arrive_and_wait();
      attention.partial(layer, q.data(), thread, threads);
      barrier.arrive_and_wait();
      attention.merge(layer, out.data(), thread, threads);
    };
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
    work(0);
    for (std::thread& t : others) t.join();
  }
  return output;
}

double worst_error(const StepOutput& output, const Part& part, int row_begin, const std::vector<int>& rows,
                   std::string* tell) {
  const ClassSpec& spec = part.sequence->cls().spec();
  const auto dim = static_cast<size_t>(spec.head_dim);
  double worst = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    const int ordinal = static_cast<int>(i);
    HeadRows head;
    for (int h = 0; h < spec.q_heads; ++h) {
      const int group = spec.q_heads / spec.kv_heads;
      if (h % group == 0) head = part.sequence->decoded(ordinal, h / group, part.past);
      for (const int row : rows) {
        const std::vector<double> want = part.sequence->expected(head, ordinal, part.past + row, h);
        const float* got =
            output[i].data() +
            (static_cast<size_t>(row_begin + row) * static_cast<size_t>(spec.q_heads) + static_cast<size_t>(h)) * dim;
        double error = 0, norm = 0;
        for (size_t d = 0; d < dim; ++d) {
          error += std::pow(static_cast<double>(got[d]) - want[d], 2);
          norm += want[d] * want[d];
        }
        const double relative = std::sqrt(error / norm);
        if (relative <= worst) continue;  // NaN is worse than everything
        worst = relative;
        if (tell != nullptr) {
          *tell = "layer " + std::to_string(i) + " row " + std::to_string(row) + " head " + std::to_string(h);
        }
        if (std::isnan(relative)) return std::numeric_limits<double>::infinity();
      }
    }
  }
  return worst;
}

std::vector<int> sample_rows(int past, int rows, uint32_t seed) {
  std::vector<int> sample = {0, rows - 1, static_cast<int>(seed % static_cast<uint32_t>(rows))};
  const int edge = kTileTokens - past % kTileTokens;  // first row of the next tile
  for (const int row : {edge - 1, edge}) {
    if (row >= 0 && row < rows) sample.push_back(row);
  }
  std::sort(sample.begin(), sample.end());
  sample.erase(std::unique(sample.begin(), sample.end()), sample.end());
  return sample;
}

}  // namespace varve::attention::test
