// Time per tile of every kernel of every table this machine can run. Names are kernel/codec/table/head_dim/group;
// --benchmark_filter picks. Tiles walk over `kWorkingSet` bytes, so that the caches hold what they would hold in
// attention; --cached (first argument) keeps to one tile and shows the arithmetic alone.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/memory.h"
#include "format/rotation.h"
#include "kernels/cpu/kernels.h"

namespace varve::kernels {
namespace {

constexpr size_t kWorkingSet = size_t{256} << 20;

std::vector<float> gaussian(size_t n) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

/// Copies of one tile, one after the other, visited in order.
class Tiles {
 public:
  Tiles(size_t tile_bytes, bool cached)
      : bytes_(tile_bytes), count_(cached ? 1 : kWorkingSet / tile_bytes), buffer_(tile_bytes * count_) {}
  uint8_t* first() { return buffer_.data(); }
  void replicate() {
    for (size_t i = 1; i < count_; ++i) std::memcpy(buffer_.data() + i * bytes_, buffer_.data(), bytes_);
  }
  const uint8_t* next() {
    if (++at_ == count_) at_ = 0;
    return buffer_.data() + at_ * bytes_;
  }
  void report(benchmark::State& state) const {
    state.SetBytesProcessed(static_cast<int64_t>(bytes_) * static_cast<int64_t>(state.iterations()));
  }

 private:
  size_t bytes_;
  size_t count_;
  size_t at_ = 0;
  AlignedBuffer buffer_;
};

size_t tile_floats(int head_dim) { return static_cast<size_t>(kTileTokens * head_dim); }

void scores(benchmark::State& state, const Kernels* kernels, KCodec codec, int head_dim, int group, bool cached) {
  const auto rows = gaussian(tile_floats(head_dim));
  Tiles tiles(format::k_codec(codec).tile_bytes(head_dim), cached);
  kernels->k_encode[static_cast<size_t>(codec)](rows.data(), head_dim, {}, tiles.first());
  tiles.replicate();
  std::vector<int16_t> codes(static_cast<size_t>(group * head_dim));
  std::vector<float> step(static_cast<size_t>(group)), out(static_cast<size_t>(group * kTileTokens));
  std::vector<int32_t> sums(static_cast<size_t>(group));
  kernels->quantize_query(rows.data(), group, head_dim, codes.data(), step.data(), sums.data());
  const QueryGroup q{group, head_dim, rows.data(), codes.data(), step.data(), sums.data()};
  for (auto _ : state) {
    kernels->k_scores[static_cast<size_t>(codec)](tiles.next(), q, out.data());
    benchmark::DoNotOptimize(out.data());
  }
  tiles.report(state);
}

void accumulate(benchmark::State& state, const Kernels* kernels, VCodec codec, int head_dim, int group, bool cached) {
  const auto rows = gaussian(tile_floats(head_dim));
  Tiles tiles(format::v_codec(codec).tile_bytes(head_dim), cached);
  kernels->v_encode[static_cast<size_t>(codec)](rows.data(), head_dim, {}, tiles.first());
  tiles.replicate();
  std::vector<float> p = gaussian(static_cast<size_t>(group * kTileTokens));
  for (float& x : p) x = std::exp(x);
  std::vector<float> acc(static_cast<size_t>(group * head_dim));
  for (auto _ : state) {
    kernels->v_accumulate[static_cast<size_t>(codec)](tiles.next(), head_dim, group, p.data(), acc.data());
    benchmark::DoNotOptimize(acc.data());
  }
  tiles.report(state);
}

void decode_tile(benchmark::State& state, void (*decode)(const uint8_t*, int, float*), size_t bytes, int head_dim) {
  Tiles tiles(bytes, true);
  std::vector<float> rows(tile_floats(head_dim));
  for (auto _ : state) {
    decode(tiles.next(), head_dim, rows.data());
    benchmark::DoNotOptimize(rows.data());
  }
}

void encode_tile(benchmark::State& state, void (*encode)(const float*, int, const format::EncodeOptions&, uint8_t*),
                 size_t bytes, int head_dim) {
  Tiles tiles(bytes, true);
  const auto rows = gaussian(tile_floats(head_dim));
  for (auto _ : state) {
    encode(rows.data(), head_dim, {}, tiles.first());
    benchmark::DoNotOptimize(tiles.first());
  }
}

void rotate_rows(benchmark::State& state, const Kernels* kernels, int head_dim) {
  auto rows = gaussian(tile_floats(head_dim));
  const auto rotation = format::Rotation::create(head_dim, 1);
  for (auto _ : state) {
    kernels->rotate(rows.data(), kTileTokens, head_dim, rotation->signs());
    benchmark::DoNotOptimize(rows.data());
  }
}

void softmax_row(benchmark::State& state, const Kernels* kernels) {
  const auto scores = gaussian(kTileTokens);
  std::vector<float> row(kTileTokens);
  for (auto _ : state) {
    std::copy(scores.begin(), scores.end(), row.begin());
    benchmark::DoNotOptimize(kernels->exp_sum(row.data(), kTileTokens, kernels->max(row.data(), kTileTokens)));
  }
}

void multiply(benchmark::State& state, const Kernels* kernels, int m, int n, int k) {
  const auto a = gaussian(static_cast<size_t>(m * k)), b = gaussian(static_cast<size_t>(k * n));
  std::vector<float> c(static_cast<size_t>(m * n));
  for (auto _ : state) {
    kernels->gemm(m, n, k, a.data(), k, b.data(), n, c.data(), n, false);
    benchmark::DoNotOptimize(c.data());
  }
  state.counters["flop/s"] = benchmark::Counter(2.0 * m * n * k, benchmark::Counter::kIsIterationInvariantRate);
}

void add(const std::string& name, auto&&... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), std::forward<decltype(arguments)>(arguments)...);
}

void register_table(const Kernels* kernels, bool cached) {
  const std::string table = std::string("/") + kernels->name;
  const auto dim = [](int n) { return std::string(1, '/').append(std::to_string(n)); };
  for (const int head_dim : format::kHeadDims) {
    for (size_t i = 0; i < kKCodecs; ++i) {
      const KCodec codec = static_cast<KCodec>(i);
      const std::string id = std::string("/") + format::k_codec(codec).name + table + dim(head_dim);
      const size_t bytes = format::k_codec(codec).tile_bytes(head_dim);
      for (const int group : {1, 2, 3, 4, 6, 7, 8}) {
        add("scores" + id + dim(group), scores, kernels, codec, head_dim, group, cached);
      }
      add("decode_k" + id, decode_tile, kernels->k_decode[i], bytes, head_dim);
      add("encode_k" + id, encode_tile, kernels->k_encode[i], bytes, head_dim);
    }
    for (size_t i = 0; i < kVCodecs; ++i) {
      const VCodec codec = static_cast<VCodec>(i);
      const std::string id = std::string("/") + format::v_codec(codec).name + table + dim(head_dim);
      const size_t bytes = format::v_codec(codec).tile_bytes(head_dim);
      for (const int group : {1, 2, 3, 4, 6, 7, 8}) {
        add("accumulate" + id + dim(group), accumulate, kernels, codec, head_dim, group, cached);
      }
      add("decode_v" + id, decode_tile, kernels->v_decode[i], bytes, head_dim);
      add("encode_v" + id, encode_tile, kernels->v_encode[i], bytes, head_dim);
    }
    add("rotate64" + table + dim(head_dim), rotate_rows, kernels, head_dim);
    for (const int m : {1, 4, 16, 128, 512}) {
      add("gemm_scores" + table + dim(head_dim) + dim(m), multiply, kernels, m, kTileTokens, head_dim);
      add("gemm_values" + table + dim(head_dim) + dim(m), multiply, kernels, m, head_dim, kTileTokens);
    }
  }
  add("softmax64" + table, softmax_row, kernels);
}

}  // namespace
}  // namespace varve::kernels

int main(int argc, char** argv) {
  const bool cached = argc > 1 && std::strcmp(argv[1], "--cached") == 0;
  if (cached) {
    argv[1] = argv[0];
    --argc;
    ++argv;
  }
  for (const varve::kernels::Kernels* table : varve::kernels::available()) {
    varve::kernels::register_table(table, cached);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
