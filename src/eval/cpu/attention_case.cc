#include "eval/cpu/attention_case.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace varve::eval {

std::string AttentionShape::name() const {
  return std::to_string(q_heads) + "/" + std::to_string(kv_heads) + "/" + std::to_string(head_dim) + " @" +
         (tokens % 1024 == 0 ? std::to_string(tokens / 1024) + "K" : std::to_string(tokens));
}

AttentionData random_attention(const AttentionShape& shape) {
  AttentionData out{shape, {}, {}, {}};
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>* x, size_t n) {
    x->resize(n);
    for (float& value : *x) value = normal(random);
  };
  fill(&out.q, shape.q_size());
  fill(&out.k, static_cast<size_t>(shape.tokens) * shape.row());
  fill(&out.v, static_cast<size_t>(shape.tokens) * shape.row());
  return out;
}

std::vector<double> exact_attention(const AttentionData& data, std::span<const float> k, std::span<const float> v) {
  const AttentionShape& s = data.shape;
  const auto dim = static_cast<size_t>(s.head_dim), length = static_cast<size_t>(s.length());
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  std::vector<double> out(s.q_size()), p(length);
  for (int h = 0; h < s.q_heads; ++h) {
    const size_t offset = static_cast<size_t>(h / (s.q_heads / s.kv_heads)) * dim;
    const float* q = data.q.data() + static_cast<size_t>(h) * dim;
    double* o = out.data() + static_cast<size_t>(h) * dim;
    for (size_t t = 0; t < length; ++t) {
      p[t] = 0;
      for (size_t d = 0; d < dim; ++d) p[t] += static_cast<double>(q[d]) * k[t * s.row() + offset + d];
      p[t] *= scale;
    }
    const double max = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (double& x : p) sum += x = std::exp(x - max);
    for (size_t t = 0; t < length; ++t) {
      for (size_t d = 0; d < dim; ++d) o[d] += p[t] / sum * v[t * s.row() + offset + d];
    }
  }
  return out;
}

double relative_error(std::span<const float> out, std::span<const double> exact) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += (out[i] - exact[i]) * (out[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace varve::eval
