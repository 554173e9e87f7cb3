#include "eval/calibrate/local_error.h"

#include <algorithm>
#include <cmath>

namespace varve::eval {
namespace {

using format::kTileTokens;

/// Keys and values of one KV head of one page.
struct PageRows {
  std::vector<float> k, v;  ///< [page_tokens][head_dim]
  int exact = 0;            ///< first rows that do not count
};

double squared_error(const std::vector<float>& a, const std::vector<float>& b, size_t from) {
  double sum = 0;
  for (size_t i = from; i < a.size(); ++i) sum += (double(a[i]) - double(b[i])) * (double(a[i]) - double(b[i]));
  return sum;
}

/// Sum over the counted rows of the squared error of keys and of values under one format.
std::pair<double, double> page_error(const PageRows& page, const format::LayerFormat& format,
                                     const format::HeadGeometry& head, int page_tokens,
                                     const format::EncodeOptions& encode) {
  const format::PlaneLayout layout = format::plane_layout(format, head.head_dim, page_tokens);
  const size_t tile_floats = size_t{kTileTokens} * static_cast<size_t>(head.head_dim);
  AlignedBuffer plane(layout.bytes);
  std::vector<float> scratch(2 * tile_floats), k(page.k.size()), v(page.v.size());
  const size_t counted = static_cast<size_t>(page.exact) * static_cast<size_t>(head.head_dim);
  format::write_centre(format, head, page.k.data() + counted, page_tokens - page.exact, page.exact, plane.data());
  for (int tile = 0; tile < layout.tiles; ++tile) {
    const size_t at = static_cast<size_t>(tile) * tile_floats;
    format::encode_tile(format, head, layout, encode, tile, page.k.data() + at, page.v.data() + at, scratch.data(),
                        plane.data());
    format::decode_tile(format, head, layout, tile, plane.data(), k.data() + at, v.data() + at);
  }
  return {squared_error(page.k, k, counted), squared_error(page.v, v, counted)};
}

/// The whole pages below `end`, one PageRows for each KV head.
Result<std::vector<PageRows>> sample_pages(const Engine& dense, SessionId session, const format::LayerGeometry& g,
                                           const LocalErrorOptions& o) {
  const size_t heads = static_cast<size_t>(g.kv_heads), head_dim = static_cast<size_t>(g.head.head_dim);
  const size_t page_rows = static_cast<size_t>(o.page_tokens);
  const int whole = o.end_position / o.page_tokens;
  std::vector<float> k, v;
  std::vector<int> starts;
  for (int page = 0; page < whole; ++page) {
    if (Status s = dense.read_rows(session, g.layer, page * o.page_tokens, page * o.page_tokens + 1, k, v); !s.ok()) {
      return s;
    }
    if (std::isfinite(k[0])) starts.push_back(page * o.page_tokens);
  }
  if (starts.empty()) {
    return invalid_argument("layer " + std::to_string(g.layer) + " has no whole page of " +
                            std::to_string(o.page_tokens) + " tokens in the first " + std::to_string(o.end_position));
  }
  std::vector<PageRows> out;
  const size_t taken = std::min(starts.size(), static_cast<size_t>(std::max(1, o.pages)));
  for (size_t i = 0; i < taken; ++i) {
    const int start = starts[i * starts.size() / taken];
    if (Status s = dense.read_rows(session, g.layer, start, start + o.page_tokens, k, v); !s.ok()) return s;
    for (size_t h = 0; h < heads; ++h) {
      PageRows& page = out.emplace_back();
      page.exact = std::max(0, o.first_position - start);
      for (size_t t = 0; t < page_rows; ++t) {
        const auto row = static_cast<ptrdiff_t>((t * heads + h) * head_dim);
        page.k.insert(page.k.end(), k.begin() + row, k.begin() + row + ptrdiff_t(head_dim));
        page.v.insert(page.v.end(), v.begin() + row, v.begin() + row + ptrdiff_t(head_dim));
      }
    }
  }
  return out;
}

}  // namespace

Result<LocalErrors> measure_local_errors(const Engine& dense, SessionId session, const format::LayerGeometry& geometry,
                                         const LocalErrorOptions& options) {
  const auto pages = sample_pages(dense, session, geometry, options);
  if (!pages.ok()) return pages.status();
  double rows = 0;
  for (const PageRows& page : *pages) rows += options.page_tokens - page.exact;
  const auto mean_errors = [&](const std::string& name) -> Result<std::pair<double, double>> {
    const auto parsed = format::parse_format(name, options.centre);
    if (!parsed.ok()) return parsed.status();
    std::pair<double, double> sum{0, 0};
    for (const PageRows& page : *pages) {
      const auto [k, v] = page_error(page, *parsed, geometry.head, options.page_tokens, options.encode);
      sum.first += k;
      sum.second += v;
    }
    return std::pair{sum.first / rows, sum.second / rows};
  };
  LocalErrors out;
  for (const std::string& codec : options.k_codecs) {
    const auto errors = mean_errors("k" + codec + "v8");
    if (!errors.ok()) return errors.status();
    out.k[codec] = errors->first;
  }
  for (const std::string& codec : options.v_codecs) {
    const auto errors = mean_errors("k8v" + codec);
    if (!errors.ok()) return errors.status();
    out.v[codec] = errors->second;
  }
  return out;
}

}  // namespace varve::eval
