#include "eval/cpu/instruction_bound.h"

#include <algorithm>

#include "base/clock.h"
#include "format/codec.h"

namespace varve::eval {
namespace {

constexpr double kOperationsPerCycle = 4;

std::optional<double> unpack_operations(int bits) {
  switch (bits) {
    case 8: return 1;
    case 4: return 2.5;
    case 3: return 5.5;
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<double> measured_clock() {
#if defined(__x86_64__)
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    constexpr int kLoops = 1'000'000;
    unsigned long x = 0;
    const double start = now_s();
    for (int i = 0; i < kLoops; ++i) {
      asm volatile(
          "add $1, %0\n add $1, %0\n add $1, %0\n add $1, %0\n"
          "add $1, %0\n add $1, %0\n add $1, %0\n add $1, %0"
          : "+r"(x));
    }
    best = std::max(best, 8.0 * kLoops / (now_s() - start));
  }
  return best;
#else
  return std::nullopt;
#endif
}

std::optional<double> instruction_bound(const std::string& kernels, const std::string& format,
                                        const AttentionShape& shape, double layer_bytes, double clock, int threads) {
  const auto parsed = format::parse_format(format, format::Centre::kNone);
  if (kernels != "avx2" || !parsed.ok() || parsed->is_low_rank()) return std::nullopt;
  const auto k = unpack_operations(format::k_codec(parsed->k).bits),
             v = unpack_operations(format::v_codec(parsed->v).bits);
  if (!k || !v || parsed->k == format::KCodec::kFp8) return std::nullopt;
  const double shared = *k + *v + 2 * 2;
  const double heads = 2 * 4.0 * shape.q_heads / shape.kv_heads;
  const double cycles_per_token = shape.head_dim / 32.0 * (shared + heads) / kOperationsPerCycle;
  const double bytes_per_token = layer_bytes / (static_cast<double>(shape.tokens) * shape.kv_heads);
  return clock * threads * bytes_per_token / cycles_per_token;
}

}  // namespace varve::eval
