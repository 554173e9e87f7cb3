#include "attention/lowrank.h"

#include <algorithm>

#include "attention/carve.h"

namespace varve::attention {

using format::BlockView;
using format::kTileTokens;
using kernels::Kernels;

namespace {

size_t product(int a, int b) { return static_cast<size_t>(a) * static_cast<size_t>(b); }

BlockView view_of(const BlockHead& head) { return format::view_block(head.shape, head.data); }

/// K (side 0) or V (side 1) of the head's basis, [rank][head_dim] f16.
const half_t* basis_of(const BlockHead& head, const BlockView& view, int side) {
  return view.basis + product(2 * head.kv_head + side, view.rank * head.shape.head_dim);
}

const half_t* anchor_of(const BlockHead& head, const BlockView& view, int side) {
  return view.anchor + product(side * head.shape.kv_heads + head.kv_head, head.shape.head_dim);
}

/// In lanes that a compiler may keep in vectors.
float sum_of_tile(const float* x) {
  constexpr int kLanes = 8;
  float lane[kLanes] = {};
  for (int t = 0; t < kTileTokens; t += kLanes) {
    for (int i = 0; i < kLanes; ++i) lane[i] += x[t + i];
  }
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

}  // namespace

bool BlockReader::reserve(int max_rank, int head_dim, int heads) {
  forget();
  const size_t tile = product(kTileTokens, head_dim), basis = product(max_rank, head_dim);
  const bool ok = fit(&codec_, [&](Carver& c) {
    key_basis_ = c.take<float>(basis);
    key_anchor_ = c.take<float>(static_cast<size_t>(head_dim));
    value_basis_ = c.take<float>(basis);
    value_anchor_ = c.take<float>(static_cast<size_t>(head_dim));
    u_ = c.take<float>(product(max_rank, kTileTokens));
    u_turned_ = c.take<float>(product(max_rank, std::max(kTileTokens, head_dim)));
    keys_ = c.take<float>(tile);
    rows_ = c.take<float>(tile);
  });
  return ok && fit(&work_, [&](Carver& c) {
           terms_ = c.take<float>(product(heads, max_rank));
           base_ = c.take<float>(static_cast<size_t>(heads));
           exact_ = c.take<float>(product(heads, kTileTokens));
           gathered_ = c.take<float>(product(heads, max_rank));
           weight_ = c.take<float>(static_cast<size_t>(heads));
           p_ = c.take<float>(product(heads, kTileTokens));
         });
}

void BlockReader::forget() {
  keys_of_ = values_of_ = {};
  terms_of_ = gathered_of_ = {};
}

void BlockReader::load_key_basis(const Kernels& kernels, const BlockHead& head) {
  if (keys_of_.same(head)) return;
  keys_of_ = head;
  const BlockView view = view_of(head);
  const int head_dim = head.shape.head_dim;
  kernels.f16_to_f32(anchor_of(head, view, 0), key_anchor_, static_cast<size_t>(head_dim));
  kernels.f16_to_f32(basis_of(head, view, 0), u_turned_, product(view.rank, head_dim));
  kernels.transpose(view.rank, head_dim, u_turned_, head_dim, key_basis_, view.rank);
}

void BlockReader::load_value_basis(const Kernels& kernels, const BlockHead& head) {
  if (values_of_.same(head)) return;
  values_of_ = head;
  const BlockView view = view_of(head);
  const int head_dim = head.shape.head_dim;
  kernels.f16_to_f32(anchor_of(head, view, 1), value_anchor_, static_cast<size_t>(head_dim));
  kernels.f16_to_f32(basis_of(head, view, 1), value_basis_, product(view.rank, head_dim));
}

void BlockReader::load_u(const Kernels& kernels, const BlockView& view, int tile) {
  kernels.i8_to_f32(view.u_tile(tile), u_, product(view.rank, kTileTokens));
}

void BlockReader::load_rows(const BlockHead& head, const BlockView& view, int side, int first, int last) {
  const format::RowCodec codec = head.shape.format.row_codec;
  const size_t bytes = format::row_bytes(codec, head.shape.head_dim);
  const uint8_t* rows = view.exact + product(2 * head.kv_head + side, view.rows) * bytes;
  for (int r = first; r < last; ++r) {
    format::decode_row(codec, head.shape.head_dim, rows + static_cast<size_t>(r) * bytes,
                       rows_ + product(r - first, head.shape.head_dim));
  }
}

void BlockReader::keys(const Kernels& kernels, const BlockHead& head, int tile, const PageTurn* turn, int stride,
                       float* keys) {
  const BlockView view = view_of(head);
  const int head_dim = head.shape.head_dim;
  load_key_basis(kernels, head);
  load_u(kernels, view, tile);
  for (int d = 0; d < head_dim; ++d) std::fill_n(keys + product(d, stride), kTileTokens, key_anchor_[d]);
  kernels.gemm(head_dim, kTileTokens, view.rank, key_basis_, view.rank, u_, kTileTokens, keys, stride, true);
  const int first = view.tile_rows[tile], last = view.tile_rows[tile + 1];
  load_rows(head, view, 0, first, last);
  for (int r = first; r < last; ++r) {
    float* key = keys + view.row_tokens[r] % kTileTokens;
    const float* delta = rows_ + product(r - first, head_dim);
    for (int d = 0; d < head_dim; ++d) key[product(d, stride)] = key_anchor_[d] + delta[d];
  }
  if (!head.shape.format.rotated && turn != nullptr) turn->to_positions(kernels, tile, keys, stride);
}

void BlockReader::values(const Kernels& kernels, const BlockHead& head, int tile, float* rows) {
  const BlockView view = view_of(head);
  const int head_dim = head.shape.head_dim;
  load_value_basis(kernels, head);
  load_u(kernels, view, tile);
  kernels.transpose(view.rank, kTileTokens, u_, kTileTokens, u_turned_, view.rank);
  for (int t = 0; t < kTileTokens; ++t) std::copy_n(value_anchor_, head_dim, rows + product(t, head_dim));
  kernels.gemm(kTileTokens, head_dim, view.rank, u_turned_, view.rank, value_basis_, head_dim, rows, head_dim, true);
  const int first = view.tile_rows[tile], last = view.tile_rows[tile + 1];
  load_rows(head, view, 1, first, last);
  for (int r = first; r < last; ++r) {
    float* row = rows + product(view.row_tokens[r] % kTileTokens, head_dim);
    const float* delta = rows_ + product(r - first, head_dim);
    for (int d = 0; d < head_dim; ++d) row[d] = value_anchor_[d] + delta[d];
  }
}

void BlockReader::score(const Kernels& kernels, const BlockHead& head, int tile, const PageTurn* turn, int group,
                        int units, const float* q, float* scores) {
  const int head_dim = head.shape.head_dim;
  if (head.shape.format.rotated || turn == nullptr) {
    score_unturned(kernels, head, view_of(head), tile, group, units, q, scores);
    return;
  }
  keys(kernels, head, tile, turn, kTileTokens, keys_);
  for (int u = 0; u < units; ++u) {
    kernels.gemm(group, kTileTokens, head_dim, q + product(u * group, head_dim), head_dim, keys_, kTileTokens,
                 scores + product(u * group, kTileTokens), kTileTokens, false);
  }
}

void BlockReader::score_unturned(const Kernels& kernels, const BlockHead& head, const BlockView& view, int tile,
                                 int group, int units, const float* q, float* scores) {
  const int head_dim = head.shape.head_dim;
  const bool fresh = !terms_of_.same(head);
  terms_of_ = head;
  load_key_basis(kernels, head);
  load_u(kernels, view, tile);
  const int first = view.tile_rows[tile], n = view.tile_rows[tile + 1] - first;
  load_rows(head, view, 0, first, first + n);
  kernels.transpose(n, head_dim, rows_, head_dim, keys_, kTileTokens);
  for (int u = 0; u < units; ++u) {
    const float* queries = q + product(u * group, head_dim);
    float* terms = terms_ + product(u * group, view.rank);
    float* base = base_ + u * group;
    float* exact = exact_ + product(u * group, kTileTokens);
    float* out = scores + product(u * group, kTileTokens);
    if (fresh) {
      kernels.gemm(group, view.rank, head_dim, queries, head_dim, key_basis_, view.rank, terms, view.rank, false);
      kernels.gemm(group, 1, head_dim, queries, head_dim, key_anchor_, 1, base, 1, false);
    }
    for (int g = 0; g < group; ++g) std::fill_n(out + g * kTileTokens, kTileTokens, base[g]);
    kernels.gemm(group, kTileTokens, view.rank, terms, view.rank, u_, kTileTokens, out, kTileTokens, true);
    kernels.gemm(group, n, head_dim, queries, head_dim, keys_, kTileTokens, exact, kTileTokens, false);
    for (int g = 0; g < group; ++g) {
      for (int r = 0; r < n; ++r) {
        out[g * kTileTokens + view.row_tokens[first + r] % kTileTokens] = base[g] + exact[g * kTileTokens + r];
      }
    }
  }
}

void BlockReader::add_values(const Kernels& kernels, const BlockHead& head, int tile, int first, int last, int group,
                             int units, const float* p, float* acc) {
  const BlockView view = view_of(head);
  const int head_dim = head.shape.head_dim, heads = group * units;
  if (!gathered_of_.same(head) || acc_ != acc) {
    finish_values(kernels);
    gathered_of_ = head;
    gathered_group_ = group;
    gathered_units_ = units;
    acc_ = acc;
    std::fill_n(gathered_, product(heads, view.rank), 0.0f);
    std::fill_n(weight_, heads, 0.0f);
  }
  load_u(kernels, view, tile);
  kernels.transpose(view.rank, kTileTokens, u_, kTileTokens, u_turned_, view.rank);
  // Rows come by token, so the attended ones are neighbours. Others have no weight, but 0 x NaN is NaN.
  int begin = view.tile_rows[tile], end = view.tile_rows[tile + 1];
  while (begin < end && view.row_tokens[begin] % kTileTokens < first) ++begin;
  while (begin < end && view.row_tokens[end - 1] % kTileTokens >= last) --end;
  load_rows(head, view, 1, begin, end);
  std::copy_n(p, product(heads, kTileTokens), p_);
  for (int h = 0; h < heads; ++h) {
    float* weights = p_ + product(h, kTileTokens);
    weight_[h] += sum_of_tile(weights);
    for (int r = begin; r < end; ++r) {
      float& weight = weights[view.row_tokens[r] % kTileTokens];
      exact_[product(h, kTileTokens) + static_cast<size_t>(r - begin)] = weight;
      weight = 0;
    }
  }
  for (int u = 0; u < units; ++u) {
    const size_t at = product(u * group, kTileTokens);
    kernels.gemm(group, view.rank, kTileTokens, p_ + at, kTileTokens, u_turned_, view.rank,
                 gathered_ + product(u * group, view.rank), view.rank, true);
    if (begin == end) continue;
    kernels.gemm(group, head_dim, end - begin, exact_ + at, kTileTokens, rows_, head_dim,
                 acc + product(u * group, head_dim), head_dim, true);
  }
}

void BlockReader::finish_page(const Kernels& kernels) {
  const int head_dim = gathered_of_.shape.head_dim, rank = view_of(gathered_of_).rank;
  load_value_basis(kernels, gathered_of_);
  for (int u = 0; u < gathered_units_; ++u) {
    kernels.gemm(gathered_group_, head_dim, rank, gathered_ + product(u * gathered_group_, rank), rank, value_basis_,
                 head_dim, acc_ + product(u * gathered_group_, head_dim), head_dim, true);
  }
  for (int h = 0; h < gathered_group_ * gathered_units_; ++h) {
    float* out = acc_ + product(h, head_dim);
    for (int d = 0; d < head_dim; ++d) out[d] += weight_[h] * value_anchor_[d];
  }
  gathered_of_ = {};
}

}  // namespace varve::attention
