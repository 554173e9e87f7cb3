#pragma once
// Random numbers that are the same on every platform: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014) and no distribution of the standard library, whose results differ between vendors.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace varve::eval {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  /// A stream of its own for each name under a seed.
  static Random named(uint64_t seed, std::string_view name) {
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    Random mixed(hash ^ (seed * 0x9e3779b97f4a7c15u));
    return Random(mixed.next());
  }

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, n), n > 0, without bias: values of the last incomplete run of n are drawn again.
  uint64_t below(uint64_t n) {
    const uint64_t usable = UINT64_MAX - UINT64_MAX % n;
    for (;;)
      if (const uint64_t x = next(); x < usable) return x % n;
  }

  /// Uniform in [lo, hi].
  int64_t between(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(below(static_cast<uint64_t>(hi - lo) + 1));
  }

  /// Uniform in [0, 1), a multiple of 2^-53.
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

  /// `count` different numbers of [0, n) in random order; count <= n.
  std::vector<size_t> sample(size_t n, size_t count) {
    std::vector<size_t> all(n);
    for (size_t i = 0; i < n; ++i) all[i] = i;
    for (size_t i = 0; i < count; ++i) std::swap(all[i], all[i + below(n - i)]);
    all.resize(count);
    return all;
  }

 private:
  uint64_t state_;
};

}  // namespace varve::eval
