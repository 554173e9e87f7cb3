#include "format/codec.h"

#include <algorithm>
#include <charconv>

#include "format/f16/layout.h"
#include "format/fp8/layout.h"
#include "format/int8/layout.h"
#include "format/tq/layout.h"

namespace varve::format {
namespace {

template <int bits>
constexpr KCodecInfo tq_k(KCodec id, const char* name) {
  return {id,
          name,
          bits,
          Frame::kRotated,
          [](int head_dim) { return tq::k_tile_bytes(head_dim, bits); },
          tq::encode_k<bits>,
          tq::decode_k<bits>};
}

template <int bits>
constexpr VCodecInfo tq_v(VCodec id, const char* name) {
  return {id,
          name,
          bits,
          Frame::kRotated,
          [](int head_dim) { return tq::v_tile_bytes(head_dim, bits); },
          tq::encode_v<bits>,
          tq::decode_v<bits>};
}

size_t f16_bytes(int head_dim) { return f16::tile_bytes(head_dim); }
size_t fp8_bytes(int head_dim) { return fp8::tile_bytes(head_dim); }
size_t int8_bytes(int head_dim) { return int8::tile_bytes(head_dim); }

constexpr size_t kKCount = static_cast<size_t>(KCodec::kCount);
constexpr size_t kVCount = static_cast<size_t>(VCodec::kCount);

constexpr std::array<KCodecInfo, kKCount> kKCodecs = {{
    {KCodec::kF16, "f16", 16, Frame::kPlain, f16_bytes, f16::encode, f16::decode},
    {KCodec::kFp8, "fp8", 8, Frame::kRotated, fp8_bytes, fp8::encode, fp8::decode},
    {KCodec::kInt8, "int8", 8, Frame::kRotated, int8_bytes, int8::encode_k, int8::decode_k},
    tq_k<6>(KCodec::kTq6, "k6"),
    tq_k<5>(KCodec::kTq5, "k5"),
    tq_k<4>(KCodec::kTq4, "k4"),
    tq_k<3>(KCodec::kTq3, "k3"),
    tq_k<2>(KCodec::kTq2, "k2"),
}};

constexpr std::array<VCodecInfo, kVCount> kVCodecs = {{
    {VCodec::kF16, "f16", 16, Frame::kPlain, f16_bytes, f16::encode, f16::decode},
    {VCodec::kFp8, "fp8", 8, Frame::kRotated, fp8_bytes, fp8::encode, fp8::decode},
    {VCodec::kInt8, "int8", 8, Frame::kRotated, int8_bytes, int8::encode_v, int8::decode_v},
    tq_v<4>(VCodec::kTq4, "v4"),
    tq_v<3>(VCodec::kTq3, "v3"),
    tq_v<2>(VCodec::kTq2, "v2"),
}};

constexpr bool in_order() {
  for (size_t i = 0; i < kKCount; ++i) {
    if (static_cast<size_t>(kKCodecs[i].id) != i) return false;
  }
  for (size_t i = 0; i < kVCount; ++i) {
    if (static_cast<size_t>(kVCodecs[i].id) != i) return false;
  }
  return true;
}
static_assert(in_order(), "the tables are indexed by codec id");

/// The codec's part of a pair's name, e.g. "8" in "k8v4".
constexpr std::array<std::string_view, kKCount> kKWidths = {"f16", "fp8", "8", "6", "5", "4", "3", "2"};
constexpr std::array<std::string_view, kVCount> kVWidths = {"f16", "fp8", "8", "4", "3", "2"};

template <typename Names>
int find(const Names& names, std::string_view name) {
  const auto it = std::find(names.begin(), names.end(), name);
  return it == names.end() ? -1 : static_cast<int>(it - names.begin());
}

template <typename Names>
std::string join(const Names& names) {
  std::string all;
  for (const std::string_view name : names) {
    if (!all.empty()) all += '|';
    all += name;
  }
  return all;
}

std::string valid_formats() {
  return "valid are f16, fp8, int8, k<" + join(kKWidths) + ">v<" + join(kVWidths) +
         ">, e.g. k4v3, and lr<rank>+<exact rows>[/int4|/f16][/rotated], e.g. lr32+64";
}

/// What a low-rank format's name says of its exact rows; int8 goes without saying.
constexpr std::array<std::string_view, 3> kRowCodecs = {"int8", "int4", "f16"};

/// Takes a number off the front of text; -1 when there is none that an int holds.
int take_number(std::string_view* text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || text->front() == '-') return -1;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return value;
}

/// name: what follows "lr".
Result<LayerFormat> parse_low_rank(std::string_view name, const std::string& quoted) {
  LayerFormat format;
  LowRank& low_rank = format.low_rank;
  low_rank.rank = take_number(&name);
  const bool has_rows = low_rank.rank >= 0 && !name.empty() && name.front() == '+';
  if (has_rows) name.remove_prefix(1);
  low_rank.rows = has_rows ? take_number(&name) : -1;
  if (low_rank.rank < 0 || low_rank.rows < 0) {
    return invalid_argument(quoted + " needs a rank and a number of exact rows; " + valid_formats());
  }
  if (low_rank.rank < 1 || low_rank.rank >= kMaxLowRankTokens || low_rank.rows >= kMaxLowRankTokens) {
    const std::string most = ".." + std::to_string(kMaxLowRankTokens - 1);
    return invalid_argument(quoted + ": rank " + std::to_string(low_rank.rank) + " is not within 1" + most +
                            " or exact rows " + std::to_string(low_rank.rows) + " not within 0" + most);
  }
  for (const RowCodec codec : {RowCodec::kInt4, RowCodec::kF16}) {
    const std::string suffix = std::string("/").append(kRowCodecs[static_cast<size_t>(codec)]);
    if (!name.starts_with(suffix)) continue;
    low_rank.row_codec = codec;
    name.remove_prefix(suffix.size());
    break;
  }
  if (name == "/rotated") {
    low_rank.rotated = true;
  } else if (!name.empty()) {
    return invalid_argument(quoted + " ends in '" + std::string(name) + "'; " + valid_formats());
  }
  return format;
}

constexpr std::array<std::string_view, 3> kCentres = {"none", "post", "rotary"};

}  // namespace

const KCodecInfo& k_codec(KCodec id) { return kKCodecs[static_cast<size_t>(id)]; }
const VCodecInfo& v_codec(VCodec id) { return kVCodecs[static_cast<size_t>(id)]; }

bool head_dim_supported(int head_dim) {
  return std::find(kHeadDims.begin(), kHeadDims.end(), head_dim) != kHeadDims.end();
}

Result<LayerFormat> parse_format(std::string_view name, Centre centre) {
  const std::string quoted = "format '" + std::string(name) + "'";
  if (name.starts_with("lr")) return parse_low_rank(name.substr(2), quoted);
  std::string_view k, v;
  if (name == "f16" || name == "fp8") {
    k = v = name;
  } else if (name == "int8") {
    k = v = "8";
  } else {
    const size_t split = name.find('v');
    if (name.empty() || name.front() != 'k' || split == std::string_view::npos) {
      return invalid_argument(quoted + " is unknown; " + valid_formats());
    }
    k = name.substr(1, split - 1);
    v = name.substr(split + 1);
  }
  const int k_id = find(kKWidths, k);
  const int v_id = find(kVWidths, v);
  if (k_id < 0) {
    return invalid_argument(quoted + ": no K codec has width '" + std::string(k) + "'; " + valid_formats());
  }
  if (v_id < 0) {
    return invalid_argument(quoted + ": no V codec has width '" + std::string(v) + "'; " + valid_formats());
  }
  LayerFormat format{static_cast<KCodec>(k_id), static_cast<VCodec>(v_id), centre};
  if (format.k == KCodec::kF16) format.centre = Centre::kNone;
  return format;
}

std::string format_name(const LayerFormat& format) {
  if (format.is_low_rank()) {
    const LowRank& low_rank = format.low_rank;
    std::string name = "lr" + std::to_string(low_rank.rank) + '+' + std::to_string(low_rank.rows);
    if (low_rank.row_codec != RowCodec::kInt8) {
      name.append("/").append(kRowCodecs[static_cast<size_t>(low_rank.row_codec)]);
    }
    return low_rank.rotated ? name + "/rotated" : name;
  }
  const std::string_view k = kKWidths[static_cast<size_t>(format.k)];
  const std::string_view v = kVWidths[static_cast<size_t>(format.v)];
  if (k == v && (format.k == KCodec::kF16 || format.k == KCodec::kFp8)) return std::string(k);
  if (format.k == KCodec::kInt8 && format.v == VCodec::kInt8) return "int8";
  return std::string("k").append(k).append("v").append(v);
}

Result<Centre> parse_centre(std::string_view name) {
  const int id = find(kCentres, name);
  if (id < 0) {
    return invalid_argument("centre '" + std::string(name) + "' is unknown; valid are " + join(kCentres));
  }
  return static_cast<Centre>(id);
}

const char* centre_name(Centre centre) { return kCentres[static_cast<size_t>(centre)].data(); }

}  // namespace varve::format
