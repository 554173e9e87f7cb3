// Time of one layer of one step (append, partial, merge) at the shape of smollm2-135m (9 query heads, 3 KV heads,
// head_dim 64, pages of 256) on one thread. Decode: one row over a long past. Prefill: a chunk of 512 rows.
//   micro_attention --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
// shared: one row for each of several sequences on copies of one past ("apart") and on the same pages, in turns.
// mass: decode without and with page mass collection in every layer, in turns.
// route: decode over 32,768 tokens with all pages (all_us) and with a router's 16 (routed_us), in turns; a selection
// serves 1 or 4 steps. routeprefill512: a chunk of 512 rows, likewise.
// Pages that a row attends to are "<format>" or, for mixed and lr, int8 for the newest 512 tokens and k4v3 or low-rank
// blocks before.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>

#include "attention/convert.h"
#include "attention/select/memory.h"
#include "attention/step.h"
#include "base/median.h"
#include "base/memory.h"

namespace varve::attention {
namespace {

constexpr int kQueryHeads = 9, kKvHeads = 3, kHeadDim = 64, kPageTokens = 256, kRecentTokens = 512;

struct Tiers {
  const char* name;
  format::LayerFormat recent, stale;
};

format::LayerFormat format_of(const char* name, format::Centre centre) { return *format::parse_format(name, centre); }

std::vector<Tiers> all_tiers() {
  using format::Centre;
  const auto f16 = format_of("f16", Centre::kNone);
  std::vector<Tiers> tiers = {{"f16", f16, f16}};
  for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
    const auto int8 = format_of("int8", centre), k4v3 = format_of("k4v3", centre);
    static constexpr const char* kNames[][3] = {{"int8", "k4v3", "mixed"},
                                                {"int8.post", "k4v3.post", "mixed.post"},
                                                {"int8.rotary", "k4v3.rotary", "mixed.rotary"}};
    const auto& names = kNames[static_cast<int>(centre)];
    tiers.push_back({names[0], int8, int8});
    tiers.push_back({names[1], k4v3, k4v3});
    tiers.push_back({names[2], int8, k4v3});
  }
  for (const char* name : {"lr32+64", "lr32+64/rotated"}) {
    tiers.push_back({name, format_of("int8", Centre::kPost), format_of(name, Centre::kNone)});
  }
  return tiers;
}

/// A cache of `past` random tokens in one layer, filled through the attention itself and converted page by page.
class Fixture {
 public:
  Fixture(const Tiers& tiers, int past, int rows, const RouteOptions& route = {}) : past_(past), rows_(rows) {
    geometry_.route = route;
    std::vector<float> theta;
    for (int p = 0; p < kHeadDim / 2; ++p) theta.push_back(std::pow(1e4f, -static_cast<float>(p) / (kHeadDim / 2)));
    rotary_ = std::make_unique<format::RotaryTable>(theta, kHeadDim, true);
    geometry_.layers.resize(1);
    format::LayerGeometry& layer = geometry_.layers[0];
    layer.q_heads = kQueryHeads;
    layer.kv_heads = kKvHeads;
    layer.head = {kHeadDim, &rotation_, rotary_.get()};
    layer.scale = 1.0f / 8;
    recent_ = format::slot_layout(geometry_.layers, {tiers.recent}, kPageTokens);
    stale_ = format::slot_layout(geometry_.layers, {tiers.stale}, kPageTokens);
    strip_layout_ = format::strip_layout(geometry_.layers, {tiers.recent}, 4);
    strip_ = AlignedBuffer(strip_layout_.bytes);
    geometry_.recent = &recent_;
    geometry_.strip = &strip_layout_;
    attention_ = std::make_unique<ClassAttention>(geometry_, kernels_, 1);

    const auto values = [&](size_t n) {
      std::mt19937 random(7);
      std::normal_distribution<float> normal;
      std::vector<float> x(n);
      for (float& v : x) v = normal(random);
      return x;
    };
    const size_t chunk = static_cast<size_t>(std::max(rows, 512));
    k_ = values(chunk * kKvHeads * kHeadDim);
    v_ = k_;
    q_ = values(chunk * kQueryHeads * kHeadDim);
    out_.resize(q_.size());
    // Sealing takes seconds with a query beside it; appending alone is what is needed, so partial is left out.
    for (int at = 0; at < past; at += 512) {
      plan(at, std::min(512, past - at));
      attention_->append(0, k_.data(), v_.data(), 0, 1);
      attention_->merge(0, out_.data(), 0, 1);
    }
    if (!(tiers.stale == tiers.recent)) convert(past);
  }

  /// all: the rows attend to all pages, router or not.
  void plan(int past, int rows, const MassRequest& mass = {}, bool all = true) {
    while (static_cast<int>(slots_.size()) * kPageTokens < past + rows) {
      slots_.emplace_back(recent_.bytes);
      layouts_.push_back(&recent_);
    }
    SequenceView view;
    view.rows = rows;
    view.past = past;
    view.strip = strip_.data();
    view.full_rows = all ? rows : 0;
    if (!all) {
      view.route = &memory_;
      if (memory_.position == past) --memory_.position;  // the same step again stands for the next one
    }
    for (size_t i = 0; i < slots_.size(); ++i) {
      view.pages.push_back({slots_[i].data(), layouts_[i], static_cast<int>(i) * kPageTokens});
    }
    const Status status = attention_->plan(std::vector<SequenceView>{view}, mass);
    if (!status.ok()) std::abort();
  }

  /// One row for each of `sequences`, past and content of all being those of this cache. Whole pages are the same
  /// slots, or copies of them when `apart`; last page and strip are each sequence's own.
  void plan_many(int sequences, bool apart) {
    const size_t whole = static_cast<size_t>(past_ / kPageTokens);
    while (static_cast<int>(copies_.size()) < sequences) {
      Copy& copy = copies_.emplace_back();
      copy.strip = AlignedBuffer(strip_.size());
      std::memcpy(copy.strip.data(), strip_.data(), strip_.size());
      for (size_t i = 0; i < slots_.size(); ++i) {
        AlignedBuffer& slot = copy.slots.emplace_back(slots_[i].size());
        std::memcpy(slot.data(), slots_[i].data(), slots_[i].size());
      }
    }
    std::vector<SequenceView> views;
    for (int s = 0; s < sequences; ++s) {
      Copy& copy = copies_[static_cast<size_t>(s)];
      SequenceView& view = views.emplace_back();
      view.row_begin = s;
      view.rows = 1;
      view.past = past_;
      view.strip = copy.strip.data();
      for (size_t i = 0; i < slots_.size(); ++i) {
        AlignedBuffer& slot = i < whole && !apart ? slots_[i] : copy.slots[i];
        view.pages.push_back({slot.data(), layouts_[i], static_cast<int>(i) * kPageTokens});
      }
    }
    const Status status = attention_->plan(views);
    if (!status.ok()) std::abort();
  }

  /// One layer of the step.
  void run() {
    attention_->append(0, k_.data(), v_.data(), 0, 1);
    attention_->route(0, q_.data(), 0, 1);
    attention_->partial(0, q_.data(), 0, 1);
    attention_->merge(0, out_.data(), 0, 1);
    benchmark::DoNotOptimize(out_.data());
  }

  int past() const { return past_; }
  int rows() const { return rows_; }
  size_t bytes_read() const {
    size_t bytes = 0;
    for (size_t i = 0; i < slots_.size(); ++i) bytes += layouts_[i]->bytes;
    return bytes;
  }

 private:
  void convert(int past) {
    const format::LayerGeometry& layer = geometry_.layers[0];
    const format::LayerFormat& format = stale_.layers[0].format;
    const PageTurn turn(*rotary_, kPageTokens / format::kTileTokens);
    std::vector<float> scratch(format.is_low_rank()
                                   ? block_scratch_floats(layer, format.low_rank, kPageTokens, geometry_.encode)
                                   : convert_scratch_floats(kHeadDim, kPageTokens));
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (static_cast<int>(i + 1) * kPageTokens > past - kRecentTokens) break;
      AlignedBuffer slot(stale_.bytes);
      if (format.is_low_rank()) {
        convert_to_block(layer, recent_, stale_, geometry_.encode, {}, kernels_, &turn, 0, i == 0 ? 4 : 0,
                         slots_[i].data(), slot.data(), scratch.data());
      }
      for (int h = 0; h < kKvHeads && !format.is_low_rank(); ++h) {
        convert_plane(layer, recent_, stale_, {}, kernels_, 0, h, i == 0 ? 4 : 0, slots_[i].data(),
                      slot.data(), scratch.data());
      }
      slots_[i] = std::move(slot);
      layouts_[i] = &stale_;
    }
  }

  struct Copy {
    std::vector<AlignedBuffer> slots;
    AlignedBuffer strip;
  };

  int past_, rows_;
  const kernels::Kernels& kernels_ = *kernels::available().front();
  format::Rotation rotation_ = *format::Rotation::create(kHeadDim, 1);
  std::unique_ptr<format::RotaryTable> rotary_;
  ClassGeometry geometry_;
  format::SlotLayout recent_, stale_;
  format::StripLayout strip_layout_;
  AlignedBuffer strip_;
  std::vector<AlignedBuffer> slots_;
  std::vector<const format::SlotLayout*> layouts_;
  std::unique_ptr<ClassAttention> attention_;
  std::vector<float> k_, v_, q_, out_;
  std::vector<Copy> copies_;
  RouteMemory memory_;
};

void run_step(benchmark::State& state, const Tiers& tiers, int past, int rows) {
  Fixture fixture(tiers, past, rows);
  fixture.plan(past, rows);
  for (auto _ : state) fixture.run();
  // Multiply-adds of both products over the keys that each row sees.
  const double keys = static_cast<double>(rows) * past + static_cast<double>(rows) * (rows + 1) / 2;
  state.counters["cache_KiB"] = static_cast<double>(fixture.bytes_read()) / 1024;
  state.counters["GMAC/s"] =
      benchmark::Counter(keys * kQueryHeads * kHeadDim * 2 / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}

/// The layer of a step planned in two ways, in turns. Medians in microseconds of processor time, which neighbours on a
/// busy machine disturb less than the clock.
std::array<double, 2> medians(benchmark::State& state, Fixture& fixture, const std::function<void(bool)>& plan) {
  std::array<std::vector<double>, 2> seconds;
  for (auto _ : state) {
    for (const bool second : {false, true}) {
      plan(second);
      const std::clock_t start = std::clock();
      fixture.run();
      seconds[second].push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
  }
  std::array<double, 2> median;
  for (size_t i = 0; i < 2; ++i) {
    std::vector<double>& x = seconds[i];
    std::nth_element(x.begin(), x.begin() + static_cast<ptrdiff_t>(x.size() / 2), x.end());
    median[i] = x[x.size() / 2] * 1e6;
  }
  return median;
}

void run_mass(benchmark::State& state, const Tiers& tiers, int past) {
  Fixture fixture(tiers, past, 1);
  const auto us = medians(state, fixture, [&](bool collect) { fixture.plan(past, 1, {.rows = collect ? 1 : 0}); });
  state.counters["without_us"] = us[0];
  state.counters["with_us"] = us[1];
  state.counters["overhead_%"] = (us[1] / us[0] - 1) * 100;
}

void run_routed(benchmark::State& state, const Tiers& tiers, int past, int rows, int reroute_steps) {
  Fixture fixture(tiers, past, rows, {.pages = 16, .reroute_steps = reroute_steps, .prefill = true});
  // Over all pages, then the steps of one selection: their mean.
  std::array<std::vector<double>, 2> us;
  for (auto _ : state) {
    double routed = 0;
    for (int step = 0; step <= reroute_steps; ++step) {
      fixture.plan(past, rows, {}, step == 0);
      const std::clock_t start = std::clock();
      fixture.run();
      const double step_us = static_cast<double>(std::clock() - start) * 1e6 / CLOCKS_PER_SEC;
      if (step == 0) {
        us[0].push_back(step_us);
      } else {
        routed += step_us / reroute_steps;
      }
    }
    us[1].push_back(routed);
  }
  const double all = median(us[0]), routed = median(us[1]);
  state.counters["all_us"] = all;
  state.counters["routed_us"] = routed;
  state.counters["ratio"] = routed / all;
}

void run_shared(benchmark::State& state, const Tiers& tiers, int past, int sequences) {
  Fixture fixture(tiers, past, 1);
  const auto us = medians(state, fixture, [&](bool shared) { fixture.plan_many(sequences, !shared); });
  state.counters["apart_us"] = us[0];
  state.counters["shared_us"] = us[1];
  state.counters["ratio"] = us[1] / us[0];
}

}  // namespace
}  // namespace varve::attention

int main(int argc, char** argv) {
  using varve::attention::run_step;
  benchmark::Initialize(&argc, argv);
  for (const auto& tiers : varve::attention::all_tiers()) {
    for (const int past : {2000, 7900}) {
      // 7,900 leaves the open tile with room: repeated steps write the same rows and seal nothing.
      benchmark::RegisterBenchmark((std::string("decode/") + tiers.name + "/" + std::to_string(past)).c_str(),
                                   [=](benchmark::State& state) { run_step(state, tiers, past, 1); })
          ->Unit(benchmark::kMicrosecond);
    }
  }
  for (const auto& tiers : varve::attention::all_tiers()) {
    benchmark::RegisterBenchmark((std::string("mass/") + tiers.name + "/7900").c_str(), [=](benchmark::State& state) {
      varve::attention::run_mass(state, tiers, 7900);
    })->Unit(benchmark::kMicrosecond);
    for (const int sequences : {2, 4, 8}) {
      const std::string name = std::string("shared/") + tiers.name + "/7900/" + std::to_string(sequences);
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        varve::attention::run_shared(state, tiers, 7900, sequences);
      })->Unit(benchmark::kMicrosecond);
    }
  }
  for (const auto& tiers : varve::attention::all_tiers()) {
    for (const int steps : {1, 4}) {
      const std::string name = std::string("route/") + tiers.name + "/" + std::to_string(steps);
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        varve::attention::run_routed(state, tiers, 32700, 1, steps);
      })->Unit(benchmark::kMicrosecond);
    }
    benchmark::RegisterBenchmark((std::string("routeprefill512/") + tiers.name).c_str(), [=](benchmark::State& state) {
      varve::attention::run_routed(state, tiers, 16384, 512, 1);
    })->Unit(benchmark::kMicrosecond);
  }
  for (const auto& tiers : varve::attention::all_tiers()) {
    if (tiers.recent == tiers.stale && std::string(tiers.name) != "f16") continue;
    for (const int past : {0, 2048, 7680}) {
      benchmark::RegisterBenchmark((std::string("prefill512/") + tiers.name + "/" + std::to_string(past)).c_str(),
                                   [=](benchmark::State& state) { run_step(state, tiers, past, 512); })
          ->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
