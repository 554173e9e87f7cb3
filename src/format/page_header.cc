#include "format/page_header.h"

#include <xxhash.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

namespace varve::format {
namespace {

std::string hex(uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof(text), "0x%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string hex(const TokenDigest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    char pair[3];
    std::snprintf(pair, sizeof(pair), "%02x", byte);
    text += pair;
  }
  return text;
}

Status mismatch(const char* what, const std::string& stored, const std::string& expected) {
  return corrupt(std::string("page ").append(what) + " is " + stored + ", expected " + expected);
}

Status mismatch(const char* what, uint64_t stored, uint64_t expected) {
  return mismatch(what, std::to_string(stored), std::to_string(expected));
}

uint64_t header_checksum(const PageHeader& header) {
  return XXH3_64bits(&header, offsetof(PageHeader, header_checksum));
}

uint64_t body_checksum(const uint8_t* slot, size_t slot_bytes) {
  return XXH3_64bits(slot + sizeof(PageHeader), slot_bytes - sizeof(PageHeader));
}

void add_low_rank(const LowRank& format, const LowRankOptions& options, std::vector<uint64_t>* words) {
  words->insert(
      words->end(),
      {static_cast<uint64_t>(format.rank), static_cast<uint64_t>(format.rows), static_cast<uint64_t>(format.row_codec),
       static_cast<uint64_t>(format.rotated), std::bit_cast<uint64_t>(options.energy),
       static_cast<uint64_t>(options.least_rank), options.seed, static_cast<uint64_t>(options.oversample),
       static_cast<uint64_t>(options.power_iterations), uint64_t{std::bit_cast<uint32_t>(options.coverage_bonus)},
       uint64_t{std::bit_cast<uint32_t>(options.edge_bonus)}, options.selection});
}

}  // namespace

uint64_t page_fingerprint(const std::vector<LayerGeometry>& layers, const std::vector<LayerFormat>& formats,
                          const EncodeOptions& options) {
  std::vector<uint64_t> words;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerGeometry& g = layers[i];
    const LayerFormat& f = formats[i];
    words.push_back(static_cast<uint64_t>(g.layer));
    words.push_back(static_cast<uint64_t>(g.kv_heads));
    words.push_back(static_cast<uint64_t>(g.head.head_dim));
    words.push_back(static_cast<uint64_t>(f.k));
    words.push_back(static_cast<uint64_t>(f.v));
    words.push_back(static_cast<uint64_t>(f.centre));
    words.push_back(g.head.rotation != nullptr ? g.head.rotation->seed() : 0);
    words.push_back(g.head.rotary != nullptr ? g.head.rotary->fingerprint() : 0);
    if (f.is_low_rank()) add_low_rank(f.low_rank, options.low_rank, &words);
  }
  words.push_back(options.inner_product_norm ? 1 : 0);
  return XXH64(words.data(), words.size() * sizeof(uint64_t), kCodecVersion);
}

void write_page_header(const SlotLayout& layout, const PageIdentity& identity, uint8_t* slot) {
  PageHeader header{};
  header.magic = kPageMagic;
  header.codec_version = kCodecVersion;
  header.layout_id = kLayoutId;
  header.page_tokens = static_cast<uint32_t>(layout.page_tokens);
  header.page_start = identity.start;
  header.fingerprint = identity.fingerprint;
  header.generation = identity.generation;
  header.token_digest = identity.token_digest;
  header.slot_bytes = layout.bytes;
  header.body_checksum = body_checksum(slot, layout.bytes);
  header.header_checksum = header_checksum(header);
  std::memcpy(slot, &header, sizeof(header));
}

Status verify_page(const SlotLayout& layout, const PageIdentity& expected, std::span<const uint8_t> slot) {
  if (slot.size() != layout.bytes) return mismatch("size", slot.size(), layout.bytes);
  PageHeader header;
  std::memcpy(&header, slot.data(), sizeof(header));
  // Whose header it is, then whether it is whole, then what it says: an older layout is named as such.
  if (header.magic != kPageMagic) return mismatch("magic", hex(header.magic), hex(kPageMagic));
  if (header.codec_version != kCodecVersion) return mismatch("codec version", header.codec_version, kCodecVersion);
  if (header.layout_id != kLayoutId) return mismatch("layout id", header.layout_id, kLayoutId);
  const uint64_t header_sum = header_checksum(header);
  if (header.header_checksum != header_sum) {
    return mismatch("header checksum", hex(header.header_checksum), hex(header_sum));
  }
  if (header.fingerprint != expected.fingerprint) {
    return mismatch("fingerprint", hex(header.fingerprint), hex(expected.fingerprint));
  }
  const uint64_t page_tokens = static_cast<uint64_t>(layout.page_tokens);
  if (header.page_tokens != page_tokens) return mismatch("page_tokens", header.page_tokens, page_tokens);
  if (header.page_start != expected.start) return mismatch("start", header.page_start, expected.start);
  if (header.slot_bytes != layout.bytes) return mismatch("slot bytes", header.slot_bytes, layout.bytes);
  if (header.token_digest != expected.token_digest) {
    return mismatch("token digest", hex(header.token_digest), hex(expected.token_digest));
  }
  if (header.generation != expected.generation) return mismatch("generation", header.generation, expected.generation);
  const uint64_t body_sum = body_checksum(slot.data(), slot.size());
  if (header.body_checksum != body_sum) return mismatch("body checksum", hex(header.body_checksum), hex(body_sum));
  return {};
}

}  // namespace varve::format
