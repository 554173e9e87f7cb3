// Slot layouts and the header that makes a page describe itself. A damaged page of every format must be named as such.

#include "format/page_header.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "format/layout.h"
#include "support.h"

namespace varve::format {
namespace {

using namespace test;

/// A class of two layers with different geometry.
struct Class {
  Class() {
    layers.push_back({.layer = 3, .q_heads = 4, .kv_heads = 2, .head = {64, &rotation64, &rotary64}});
    layers.push_back({.layer = 5, .q_heads = 2, .kv_heads = 1, .head = {80, &rotation80, &rotary80}});
  }
  Rotation rotation64 = *Rotation::create(64, 7);
  Rotation rotation80 = *Rotation::create(80, 7);
  RotaryTable rotary64{std::vector<float>(32, 0.1f), 64, true};
  RotaryTable rotary80{std::vector<float>(16, 0.1f), 80, false};
  std::vector<LayerGeometry> layers;
};

constexpr int kPageTokens = 128;
constexpr const char* kFormats[] = {"f16", "fp8", "int8", "k6v4", "k5v4", "k4v3", "k3v3", "k2v2", "k8v3", "kfp8v4"};

std::vector<LayerFormat> uniform(const char* name, Centre centre) {
  return std::vector<LayerFormat>(2, *parse_format(name, centre));
}

TEST(SlotLayout, SizesAddUp) {
  Class c;
  for (const char* name : kFormats) {
    for (const Centre centre : {Centre::kNone, Centre::kRotary}) {
      const auto formats = uniform(name, centre);
      const SlotLayout slot = slot_layout(c.layers, formats, kPageTokens);
      EXPECT_EQ(slot.header_bytes, 128u);
      size_t at = slot.header_bytes, payload = 0;
      for (size_t i = 0; i < 2; ++i) {
        const int head_dim = c.layers[i].head.head_dim;
        const KCodecInfo& k = k_codec(formats[i].k);
        const VCodecInfo& v = v_codec(formats[i].v);
        for (int head = 0; head < c.layers[i].kv_heads; ++head) {
          EXPECT_EQ(slot.plane(static_cast<int>(i), head), at) << name;
          EXPECT_EQ(at % kCacheLine, 0u) << name;
          const PlaneLayout& p = slot.layers[i].plane;
          size_t inside = formats[i].centre == Centre::kNone ? 0 : align_up(2 * static_cast<size_t>(head_dim), 64);
          for (int tile = 0; tile < 2; ++tile, inside += k.tile_bytes(head_dim)) EXPECT_EQ(p.k_tile(tile), inside);
          for (int tile = 0; tile < 2; ++tile, inside += v.tile_bytes(head_dim)) EXPECT_EQ(p.v_tile(tile), inside);
          EXPECT_EQ(p.bytes, inside) << name;
          at += inside;
          payload += static_cast<size_t>(kPageTokens * head_dim * (k.bits + v.bits) / 8);
        }
      }
      EXPECT_EQ(slot.bytes, at) << name;
      EXPECT_EQ(slot.payload_bytes, payload) << name;
      EXPECT_LT(slot.payload_bytes, slot.bytes) << name;
    }
  }
}

TEST(SlotLayout, ALowRankLayerIsOneBlock) {
  Class c;
  const std::vector<LayerFormat> formats = {*parse_format("lr16+8/int4", Centre::kNone),
                                            *parse_format("k4v3", Centre::kRotary)};
  ASSERT_TRUE(check_layout(c.layers, formats, kPageTokens, 4).ok());
  const SlotLayout slot = slot_layout(c.layers, formats, kPageTokens);
  const BlockShape shape = block_shape(c.layers[0], formats[0], kPageTokens);
  EXPECT_EQ(shape.kv_heads, 2);
  EXPECT_EQ(shape.head_dim, 64);
  EXPECT_EQ(slot.layers[0].block_bytes, block_bytes(shape));
  EXPECT_EQ(slot.layers[0].plane.bytes, 0u);
  EXPECT_EQ(slot.layers[0].offset, slot.header_bytes);
  EXPECT_EQ(slot.layers[1].block_bytes, 0u);
  EXPECT_EQ(slot.layers[1].offset, slot.header_bytes + block_bytes(shape));
  EXPECT_EQ(slot.bytes, slot.layers[1].offset + slot.layers[1].plane.bytes);
  EXPECT_EQ(slot.payload_bytes, block_payload_bytes(shape) + slot.layers[1].plane.payload_bytes);
  EXPECT_EQ(slot.bytes % kCacheLine, 0u);
}

TEST(SlotLayout, LowRankRefusalsSayTheNumbers) {
  const auto message = [](const char* name, int page_tokens, auto change) {
    Class c;
    change(c);
    const Status status = check_layout(c.layers, uniform(name, Centre::kNone), page_tokens, 4);
    EXPECT_FALSE(status.ok()) << name;
    return status.message();
  };
  const auto nothing = [](Class&) {};
  EXPECT_EQ(message("lr128+8", 128, nothing),
            "layer 3: format lr128+8: rank 128 is not within 1..127 for 128 tokens of 256 values");
  EXPECT_EQ(message("lr16+128", 128, nothing),
            "layer 3: format lr16+128: exact rows 128 is not within 0..127 for 128 tokens");
  EXPECT_EQ(message("lr16+8", 1088, nothing),
            "layer 3: format lr16+8: low-rank block of tokens 1088 is not within 64..1024 in steps of 64");
  EXPECT_EQ(message("lr161+8", 192, nothing),
            "layer 5: format lr161+8: rank 161 is not within 1..160 for 192 tokens of 160 values");
  EXPECT_EQ(message("lr16+8", 128, [](Class& c) { c.layers[1].head.rotary = nullptr; }),
            "layer 5: format lr16+8 needs a rotary table of head_dim 80");
  Class bare;
  bare.layers[0].head = {64, nullptr, nullptr};
  bare.layers[1].head = {80, nullptr, nullptr};
  EXPECT_TRUE(check_layout(bare.layers, uniform("lr16+8/rotated", Centre::kNone), kPageTokens, 4).ok());
}

TEST(SlotLayout, StripHoldsSinksAndTheOpenTile) {
  Class c;
  const auto formats = uniform("int8", Centre::kRotary);
  const StripLayout strip = strip_layout(c.layers, formats, 4);
  // K and V of each KV head, two heads of 64 and one of 80: the sinks of all layers first, then all open tiles.
  EXPECT_EQ(strip.sink_head_bytes, (std::vector<size_t>{2 * 4 * 64 * 2, 2 * 4 * 80 * 2}));
  EXPECT_EQ(strip.open_head_bytes, (std::vector<size_t>{2 * 64 * 64 * 2, 2 * 64 * 80 * 2}));
  EXPECT_EQ(strip.sink_bytes, 2 * strip.sink_head_bytes[0] + strip.sink_head_bytes[1]);
  EXPECT_EQ(strip.sink_offset, (std::vector<size_t>{0, 2 * strip.sink_head_bytes[0]}));
  EXPECT_EQ(strip.open_offset,
            (std::vector<size_t>{strip.sink_bytes, strip.sink_bytes + 2 * strip.open_head_bytes[0]}));
  EXPECT_EQ(strip.bytes, strip.sink_bytes + 2 * strip.open_head_bytes[0] + strip.open_head_bytes[1]);

  EXPECT_EQ(strip_layout(c.layers, uniform("f16", Centre::kNone), 4).bytes, 0u);
  const StripLayout mixed = strip_layout(c.layers, {*parse_format("f16", Centre::kNone), formats[1]}, 0);
  EXPECT_EQ(mixed.sink_bytes, 0u);
  EXPECT_EQ(mixed.open_head_bytes[0], 0u);
  EXPECT_EQ(mixed.open_offset[1], 0u);
  EXPECT_EQ(mixed.bytes, static_cast<size_t>(2 * 64 * 80 * 2));
}

TEST(SlotLayout, RefusalsSayTheNumbers) {
  Class c;
  const auto formats = uniform("k4v3", Centre::kRotary);
  EXPECT_TRUE(check_layout(c.layers, formats, kPageTokens, 4).ok());
  const auto message = [&](auto change) {
    Class bad;
    auto f = formats;
    int page = kPageTokens, sinks = 4;
    change(bad, f, page, sinks);
    const Status status = check_layout(bad.layers, f, page, sinks);
    EXPECT_FALSE(status.ok());
    return status.message();
  };
  EXPECT_EQ(message([](Class&, auto& f, int&, int&) { f.pop_back(); }), "1 formats for 2 layers");
  EXPECT_EQ(message([](Class&, auto&, int& page, int&) { page = 100; }),
            "page_tokens 100 is not a positive multiple of 64");
  EXPECT_EQ(message([](Class&, auto&, int& page, int&) { page = 0; }),
            "page_tokens 0 is not a positive multiple of 64");
  EXPECT_EQ(message([](Class&, auto&, int&, int& sinks) { sinks = 17; }), "sink_tokens 17 is not within 0..16");
  EXPECT_EQ(message([](Class& b, auto&, int&, int&) { b.layers[1].head.head_dim = 72; }),
            "layer 5: head_dim 72 (supported: 64, 80, 96, 128, 192, 256)");
  EXPECT_EQ(message([](Class& b, auto&, int&, int&) { b.layers[0].kv_heads = 3; }),
            "layer 3: 4 query heads over 3 KV heads");
  EXPECT_EQ(message([](Class& b, auto&, int&, int&) { b.layers[0].head.rotation = nullptr; }),
            "layer 3: format k4v3 needs a rotation of head_dim 64");
  EXPECT_EQ(message([](Class& b, auto&, int&, int&) { b.layers[1].head.rotation = &b.rotation64; }),
            "layer 5: format k4v3 needs a rotation of head_dim 80");
  EXPECT_EQ(message([](Class& b, auto&, int&, int&) { b.layers[1].head.rotary = nullptr; }),
            "layer 5: centre rotary needs a rotary table of head_dim 80");
  Class f16_only;
  f16_only.layers[0].head = {64, nullptr, nullptr};
  f16_only.layers[1].head = {80, nullptr, nullptr};
  EXPECT_TRUE(check_layout(f16_only.layers, uniform("f16", Centre::kRotary), kPageTokens, 0).ok());
}

struct Page {
  Page(const Class& c, const char* name)
      : formats(uniform(name, Centre::kRotary)),
        layout(slot_layout(c.layers, formats, kPageTokens)),
        slot(layout.bytes) {
    identity = {.start = 768, .fingerprint = page_fingerprint(c.layers, formats, {}), .generation = 42};
    for (size_t i = 0; i < identity.token_digest.size(); ++i) identity.token_digest[i] = static_cast<uint8_t>(i);
    for (size_t i = 0; i < formats.size(); ++i) {
      const HeadGeometry& head = c.layers[i].head;
      const auto rows = gaussian(static_cast<size_t>(kPageTokens * head.head_dim), static_cast<uint32_t>(i));
      std::vector<float> scratch(2 * tile_floats(head.head_dim));
      for (int h = 0; h < c.layers[i].kv_heads; ++h) {
        uint8_t* plane = slot.data() + layout.plane(static_cast<int>(i), h);
        write_centre(formats[i], head, rows.data(), kPageTokens, 0, plane);
        for (int tile = 0; tile < 2; ++tile) {
          const float* tile_rows = rows.data() + static_cast<size_t>(tile) * tile_floats(head.head_dim);
          encode_tile(formats[i], head, layout.layers[i].plane, {}, tile, tile_rows, tile_rows, scratch.data(), plane);
        }
      }
    }
    write_page_header(layout, identity, slot.data());
  }
  Status verify() const { return verify_page(layout, identity, slot); }

  std::vector<LayerFormat> formats;
  SlotLayout layout;
  std::vector<uint8_t> slot;
  PageIdentity identity;
};

void expect_corrupt(const Status& status, std::string_view what, const std::string& where) {
  ASSERT_FALSE(status.ok()) << where;
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << where;
  EXPECT_NE(status.message().find(what), std::string::npos) << where << ": " << status.message();
}

TEST(PageHeader, AFlippedByteAnywhereIsFoundInEveryFormat) {
  Class c;
  for (const char* name : kFormats) {
    Page page(c, name);
    ASSERT_TRUE(page.verify().ok()) << name << ": " << page.verify().message();
    const auto flip = [&](size_t at, std::string_view what) {
      page.slot[at] ^= 0x10;
      expect_corrupt(page.verify(), what, std::string(name) + ", byte " + std::to_string(at));
      page.slot[at] ^= 0x10;
    };
    for (size_t at = 0; at < 4; ++at) flip(at, "page magic is 0x");
    for (size_t at = 4; at < 6; ++at) flip(at, "page codec version is ");
    for (size_t at = 6; at < 8; ++at) flip(at, "page layout id is ");
    for (size_t at = 8; at < 128; ++at) flip(at, "page header checksum is 0x");
    for (size_t at = 128; at < page.slot.size(); at += 997) flip(at, "page body checksum is 0x");
    flip(128, "page body checksum");
    flip(page.slot.size() - 1, "page body checksum");
    EXPECT_TRUE(page.verify().ok()) << name;
  }
}

TEST(PageHeader, AMisplacedPageIsNamedWithBothValues) {
  Class c;
  for (const char* name : kFormats) {
    const Page page(c, name);
    const auto against = [&](auto change) {
      PageIdentity expected = page.identity;
      SlotLayout layout = page.layout;
      change(expected, layout);
      return verify_page(layout, expected, page.slot);
    };
    expect_corrupt(against([](auto& e, auto&) { e.start = 512; }), "page start is 768, expected 512", name);
    expect_corrupt(against([](auto& e, auto&) { e.fingerprint = 0xabc; }), "expected 0x0000000000000abc", name);
    expect_corrupt(against([](auto& e, auto&) { e.fingerprint ^= 1; }), "page fingerprint is 0x", name);
    expect_corrupt(against([](auto& e, auto&) { e.generation = 41; }), "page generation is 42, expected 41", name);
    expect_corrupt(against([](auto& e, auto&) { e.token_digest[31] = 0; }), "page token digest is 000102", name);
    expect_corrupt(against([](auto&, auto& l) { l.page_tokens = 64; }), "page page_tokens is 128, expected 64", name);
    expect_corrupt(against([](auto&, auto& l) { l.bytes += 64; }), "page size is ", name);
  }
}

TEST(PageHeader, ShortAndRandomBytesAreRefused) {
  Class c;
  const Page page(c, "k4v3");
  for (const size_t size : {size_t{0}, size_t{1}, size_t{127}, size_t{128}, page.slot.size() - 1}) {
    expect_corrupt(verify_page(page.layout, page.identity, std::span(page.slot.data(), size)),
                   "page size is " + std::to_string(size), "short");
  }
  std::mt19937 random(5);
  std::vector<uint8_t> noise(page.slot.size());
  for (int i = 0; i < 200; ++i) {
    for (auto& byte : noise) byte = static_cast<uint8_t>(random());
    if (i % 2 == 0) std::memcpy(noise.data(), page.slot.data(), 8);  // past the magic, into the header checksum
    EXPECT_EQ(verify_page(page.layout, page.identity, noise).code(), StatusCode::kCorrupt);
  }
}

TEST(PageHeader, FingerprintCoversLowRankFormatsAndHowTheyAreMade) {
  const Class c;
  const auto formats = uniform("lr16+8", Centre::kNone);
  const uint64_t base = page_fingerprint(c.layers, formats, {});
  const auto changed = [&](auto change) {
    auto f = formats;
    EncodeOptions options;
    change(f[1].low_rank, options.low_rank);
    return page_fingerprint(c.layers, f, options);
  };
  EXPECT_EQ(changed([](auto&, auto&) {}), base);
  EXPECT_NE(page_fingerprint(c.layers, uniform("f16", Centre::kNone), {}), base);
  EXPECT_NE(changed([](auto& f, auto&) { f.rank = 17; }), base);
  EXPECT_NE(changed([](auto& f, auto&) { f.rows = 9; }), base);
  EXPECT_NE(changed([](auto& f, auto&) { f.row_codec = RowCodec::kF16; }), base);
  EXPECT_NE(changed([](auto& f, auto&) { f.rotated = true; }), base);
  EXPECT_NE(changed([](auto&, auto& o) { o.energy = 0.999; }), base);
  EXPECT_NE(changed([](auto&, auto& o) { o.least_rank = 5; }), base);
  EXPECT_NE(changed([](auto&, auto& o) { o.seed = 1; }), base);
  EXPECT_NE(changed([](auto&, auto& o) { o.oversample = 6; }), base);
  EXPECT_NE(changed([](auto&, auto& o) { o.power_iterations = 1; }), base);
  EXPECT_NE(changed([](auto&, auto& o) { o.coverage_bonus = 0; }), base);
  EXPECT_NE(changed([](auto&, auto& o) { o.edge_bonus = 0; }), base);
  // Pages without low-rank layers do not depend on how such blocks would be made.
  EncodeOptions other;
  other.low_rank.seed = 1;
  EXPECT_EQ(page_fingerprint(c.layers, uniform("k4v3", Centre::kNone), other),
            page_fingerprint(c.layers, uniform("k4v3", Centre::kNone), {}));
}

TEST(PageHeader, FingerprintCoversEverythingThatChangesTheBytes) {
  const Class c;
  const auto formats = uniform("k4v3", Centre::kRotary);
  const uint64_t base = page_fingerprint(c.layers, formats, {});
  EXPECT_EQ(page_fingerprint(Class().layers, formats, {}), base);
  const auto changed = [&](auto change) {
    Class other;
    auto f = formats;
    EncodeOptions options;
    change(other, f, options);
    return page_fingerprint(other.layers, f, options);
  };
  EXPECT_NE(changed([](Class&, auto& f, auto&) { f[1].k = KCodec::kTq5; }), base);
  EXPECT_NE(changed([](Class&, auto& f, auto&) { f[0].v = VCodec::kTq4; }), base);
  EXPECT_NE(changed([](Class&, auto& f, auto&) { f[0].centre = Centre::kPost; }), base);
  EXPECT_NE(changed([](Class&, auto&, auto& o) { o.inner_product_norm = !o.inner_product_norm; }), base);
  EXPECT_NE(changed([](Class& b, auto&, auto&) { b.layers[0].kv_heads = 4; }), base);
  EXPECT_NE(changed([](Class& b, auto&, auto&) { b.layers[0].layer = 4; }), base);
  EXPECT_NE(changed([](Class& b, auto&, auto&) { b.rotation64 = *Rotation::create(64, 8); }), base);
  EXPECT_NE(changed([](Class& b, auto&, auto&) { b.rotary64 = RotaryTable(std::vector<float>(32, 0.1f), 64, false); }),
            base);
  EXPECT_NE(changed([](Class& b, auto&, auto&) { b.rotary80 = RotaryTable(std::vector<float>(16, 0.2f), 80, false); }),
            base);
  EXPECT_NE(changed([](Class& b, auto& f, auto&) {
              b.layers.pop_back();
              f.pop_back();
            }),
            base);
}

}  // namespace
}  // namespace varve::format
