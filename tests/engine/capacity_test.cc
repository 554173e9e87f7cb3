#include "engine/capacity.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace varve::engine {
namespace {

constexpr uint64_t kKiB = 1024, kGiB = kKiB * kKiB * kKiB;

/// The historical scenario of the Minima-KV paper, section 6.4. In bytes M - W is exact (86.4 - 25.15 = 61.25 GiB);
/// D = 0.153 GiB is not a whole number of bytes and is rounded up, which no cell is near enough to notice.
CapacityInput paper(uint64_t kv_bytes) {
  return {.memory_bytes = 864 * kGiB / 10,
          .resident_bytes = 864 * kGiB / 10 - 6125 * kGiB / 100,
          .fixed_bytes = (153 * kGiB + 999) / 1000,
          .kv_bytes = kv_bytes};
}

struct Row {
  uint64_t context_k;
  uint64_t bf16, fp8, minima;
};

// Table 5. Every cell is the floor of equation 14, e.g. 84.549 at 32K; "262K" is 256 * 1,024 tokens. The closest to a
// whole number from above is 25.116 (128K, minima), from below 151.985 (8K, fp8).
constexpr std::array kTable5 = {Row{8, 93, 151, 207}, Row{16, 53, 93, 139}, Row{32, 28, 53, 84},
                                Row{64, 14, 28, 47},  Row{128, 7, 14, 25},  Row{256, 3, 7, 12}};

TEST(Capacity, GivesTable5OfThePaper) {
  for (const Row& row : kTable5) {
    // 2 x 16 layers x 4 heads x 256 dimensions x 2 bytes a token (the paper's equation 2).
    const uint64_t bf16 = row.context_k * kKiB * 65536;
    EXPECT_EQ(*capacity(paper(bf16)), row.bf16) << row.context_k << "K";
    EXPECT_EQ(*capacity(paper(bf16 / 2)), row.fp8) << row.context_k << "K";
    EXPECT_EQ(*capacity(paper(bf16 * 2 / 7)), row.minima) << row.context_k << "K";  // exactly 3.50x
  }
}

TEST(Capacity, CompressedWeightsOfAppendixD) {
  CapacityInput input = paper(2 * kGiB * 2 / 7);
  input.resident_bytes = 1572 * kGiB / 100;  // W = 15.72 GiB
  EXPECT_EQ(*capacity(input), 97u);          // the paper's prediction; 98 were observed
}

TEST(Capacity, CountsWholeSequences) {
  EXPECT_EQ(*capacity({.memory_bytes = 100, .resident_bytes = 40, .fixed_bytes = 5, .kv_bytes = 15}), 3u);
  EXPECT_EQ(*capacity({.memory_bytes = 99, .resident_bytes = 40, .fixed_bytes = 5, .kv_bytes = 15}), 2u);
}

TEST(Capacity, NothingFitsBesideWeightsThatDoNot) {
  EXPECT_EQ(*capacity({.memory_bytes = 40, .resident_bytes = 40, .fixed_bytes = 1, .kv_bytes = 1}), 0u);
  EXPECT_EQ(*capacity({.memory_bytes = 10, .resident_bytes = 40, .fixed_bytes = 1, .kv_bytes = 1}), 0u);
}

TEST(Capacity, ASequenceOfNoBytesIsAnError) {
  const auto none = capacity({.memory_bytes = 100, .resident_bytes = 40, .fixed_bytes = 0, .kv_bytes = 0});
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
}

/// Two full and two sliding layers (window 512) of 2 KV heads of 64.
model::ModelInfo small_model() {
  model::ModelInfo info;
  info.layers = 4;
  for (int l = 0; l < info.layers; ++l) {
    info.kv_layers.push_back({.layer = l,
                              .q_heads = 4,
                              .kv_heads = 2,
                              .head_dim = 64,
                              .scale = 0.125f,
                              .window = l % 2 == 0 ? 512 : 0,
                              .theta = std::vector<float>(32, 0.5f),
                              .neox = true});
  }
  return info;
}

CapacityInput terms_of(const std::string& profile_name, int64_t tokens) {
  const auto profile = Profile::load(profile_name);
  const auto plan = plan_cache(small_model(), *profile);
  return capacity_terms(*plan, *profile, kGiB, 1000, tokens);
}

TEST(CapacityTerms, DenseByHand) {
  const CapacityInput terms = terms_of("dense", 4096);
  EXPECT_EQ(terms.resident_bytes, 1000u);  // nothing is ever converted: no room is kept free
  EXPECT_EQ(terms.fixed_bytes, 0u);        // f16 pages are exact: no strip
  // A token of two layers is 2 x 2 layers x 2 heads x 64 x 2 bytes = 1,024; pages of 256, each with its header.
  const auto profile = Profile::load("dense");
  ASSERT_EQ(profile->page_tokens, 256);
  const auto plan = plan_cache(small_model(), *profile);
  const size_t header = plan->classes[0].slot(cache::Tier::kRecent).header_bytes;
  EXPECT_EQ(terms.kv_bytes, (16 + 2) * (256 * 1024 + header));  // 4,096 tokens, and the last 512
}

TEST(CapacityTerms, StripsAreFixedAndRoomForOneStaleSlotIsKept) {
  const auto profile = Profile::load("minima");
  const auto plan = plan_cache(small_model(), *profile);
  const CapacityInput terms = terms_of("minima", 4096);
  // Per layer and KV head: (4 sinks + 64 open rows) of K and V, 64 x 2 bytes each.
  EXPECT_EQ(terms.fixed_bytes, 4u * 2 * 2 * 68 * 128);
  EXPECT_EQ(terms.resident_bytes, 1000 + plan->classes[0].slot(cache::Tier::kStale1).bytes);
  // In each class one page is being demoted and exists twice.
  size_t twice = 0;
  for (const ClassPlan& c : plan->classes) twice += c.slot(cache::Tier::kRecent).bytes;
  EXPECT_EQ(terms.fixed_bytes + terms.kv_bytes, plan->sequence_bytes(*profile, 4096) + twice);
}

/// Starts sequences of `tokens` in a cache with the plan's slots until the allocator refuses one.
uint64_t allocator_holds(const CachePlan& plan, int page_tokens, size_t budget_bytes, int tokens) {
  cache::Config config;
  config.budget_bytes = budget_bytes;
  config.slab_bytes = 1;
  for (const ClassPlan& c : plan.classes) {
    cache::ClassConfig& cc = config.classes.emplace_back();
    cc.page_tokens = page_tokens;
    cc.window = c.window;
    for (size_t t = 0; t < cache::kTiers; ++t) cc.slot_bytes[t] = c.slots[t].bytes;
    cc.strip_bytes = c.strip.bytes;
    cc.tile_tokens = c.strip.bytes != 0 ? format::kTileTokens : 0;
  }
  const auto cache = cache::Cache::create(config);
  if (!cache.ok()) return 0;
  for (uint64_t n = 0;; ++n) {
    const auto id = (*cache)->start();
    if (!id.ok()) return n;
    for (int done = 0; done < tokens; done += page_tokens) {
      if (!(*cache)->reserve(*id, page_tokens).ok()) return n;
      if (!(*cache)->settle(*id, page_tokens).ok()) return n;
    }
  }
}

// One tier, so that nothing waits for a conversion: the allocator admits exactly what equation 14 says.
TEST(CapacityTerms, TheAllocatorAgrees) {
  for (const char* name : {"dense", "int8", "k4v3"}) {
    const auto profile = Profile::load(name);
    model::ModelInfo info = small_model();
    for (model::LayerInfo& l : info.kv_layers) l.window = 0;  // a window's pages overlap while it slides
    const auto plan = plan_cache(info, *profile);
    const size_t budget = size_t{37} << 20;
    const CapacityInput terms = capacity_terms(*plan, *profile, budget, 0, 2048);
    EXPECT_EQ(allocator_holds(*plan, profile->page_tokens, budget, 2048), *capacity(terms)) << name;
  }
}

TEST(CheckBudget, SaysWhatWouldFit) {
  const auto profile = Profile::load("dense");
  const auto plan = plan_cache(small_model(), *profile);
  const size_t one_page = plan->sequence_bytes(*profile, 1), full = plan->sequence_bytes(*profile, 4096);
  EXPECT_TRUE(check_budget(*plan, *profile, one_page, 4096).ok());
  const Status s = check_budget(*plan, *profile, one_page - 1, 4096);
  EXPECT_EQ(s.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(s.message().find("takes " + std::to_string(one_page) + ", one of 4096 tokens " + std::to_string(full)),
            std::string::npos)
      << s.message();
}

}  // namespace
}  // namespace varve::engine
