// Encoding of low-rank blocks: time per block and tokens/s, with every gemm of this machine's kernel tables and with
// the portable one. Names are encode/gemm/tokens/width/rank.

#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "format/lr/encode.h"
#include "kernels/cpu/kernels.h"

namespace varve::format {
namespace {

void encode(benchmark::State& state, Gemm gemm, BlockShape shape) {
  // Rows of real pages: a spectrum that falls, and noise below it.
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const size_t tokens = static_cast<size_t>(shape.tokens), half = static_cast<size_t>(shape.width() / 2);
  constexpr size_t kDirections = 64;
  std::vector<float> directions(kDirections * half);
  for (float& x : directions) x = normal(random);
  const auto rows = [&] {
    std::vector<float> x(tokens * half);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t d = 0; d < half; ++d) x[t * half + d] = 0.1f * normal(random);
      for (size_t i = 0; i < kDirections; ++i) {
        const float u = normal(random) / static_cast<float>(1 + i);
        for (size_t d = 0; d < half; ++d) x[t * half + d] += u * directions[i * half + d];
      }
    }
    return x;
  };
  const std::vector<float> k = rows(), v = rows();
  std::vector<float> scratch(encode_scratch_floats(shape, {}));
  std::vector<uint8_t> block(block_bytes(shape));
  for (auto _ : state) {
    encode_block(shape, {}, {}, 0, k.data(), v.data(), gemm, scratch.data(), block.data());
    benchmark::DoNotOptimize(block.data());
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(shape.tokens), benchmark::Counter::kIsIterationInvariantRate);
}

void register_gemm(const std::string& name, Gemm gemm) {
  struct Case {
    int tokens, kv_heads, head_dim, rank;
  };
  for (const Case& c : {Case{1024, 3, 64, 32}, Case{1024, 2, 64, 32}, Case{1024, 2, 128, 32}, Case{256, 3, 64, 32},
                        Case{1024, 3, 64, 64}, Case{1024, 8, 128, 64}}) {
    const BlockShape shape{c.tokens, c.kv_heads, c.head_dim, {.rank = c.rank, .rows = 64}};
    const std::string id = "encode/" + name + '/' + std::to_string(c.tokens) + '/' + std::to_string(shape.width()) +
                           '/' + std::to_string(c.rank);
    benchmark::RegisterBenchmark(id.c_str(), encode, gemm, shape)->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace varve::format

int main(int argc, char** argv) {
  varve::format::register_gemm("portable", varve::format::plain_gemm);
  for (const varve::kernels::Kernels* table : varve::kernels::available()) {
    varve::format::register_gemm(table->name, table->gemm);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
