#include <set>

#include "kernels/cpu/tables.h"
#include "support.h"

namespace varve::kernels::testing {
namespace {

TEST(Dispatch, GenericIsLastAndTheBestIsFirst) {
  const auto& tables = available();
  ASSERT_FALSE(tables.empty());
  EXPECT_STREQ(tables.back()->name, "generic");
  EXPECT_EQ(*choose(""), tables.front());
}

TEST(Dispatch, ForcingATableGivesThatTable) {
  for (const Kernels* table : available()) {
    const auto chosen = choose(table->name);
    ASSERT_TRUE(chosen.ok()) << chosen.status().message();
    EXPECT_EQ(*chosen, table);
    EXPECT_STREQ((*chosen)->name, table->name);
  }
}

TEST(Dispatch, TablesShareNoKernel) {
  std::set<const void*> seen;
  const auto add = [&](auto function) {
    ASSERT_NE(function, nullptr);
    EXPECT_TRUE(seen.insert(reinterpret_cast<const void*>(function)).second);
  };
  for (const Kernels* table : available()) {
    for (const auto f : table->k_scores) add(f);
    for (const auto f : table->v_accumulate) add(f);
    add(table->quantize_query);
    add(table->rotate);
    add(table->unrotate);
    add(table->f16_scores);
    add(table->f16_accumulate);
    add(table->exp_sum);
    add(table->max);
    add(table->gemm);
    add(table->curve_terms);
    add(table->add_curve);
    add(table->f32_to_f16);
    add(table->f16_to_f32);
    for (size_t i = 0; i < kKCodecs; ++i) ASSERT_TRUE(table->k_decode[i] && table->k_encode[i]);
    for (size_t i = 0; i < kVCodecs; ++i) ASSERT_TRUE(table->v_decode[i] && table->v_encode[i]);
  }
}

TEST(Dispatch, UnknownNameListsWhatThereIs) {
  const auto chosen = choose("avx1024");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.status().code(), StatusCode::kInvalidArgument);
  for (const char* expected : {"avx1024", "avx512vnni", "avx512", "avx2", "generic"}) {
    EXPECT_NE(chosen.status().message().find(expected), std::string::npos) << chosen.status().message();
  }
}

TEST(Dispatch, RefusedTableSaysWhatIsRequiredAndMissing) {
  bool refused = false;
  for (const TableEntry& entry : all_tables()) {
    const std::string missing = feature_names(entry.required, true);
    const auto chosen = choose(entry.name);
    EXPECT_EQ(chosen.ok(), missing.empty()) << entry.name;
    if (chosen.ok()) continue;
    refused = true;
    EXPECT_EQ(chosen.status().code(), StatusCode::kUnsupported);
    for (const std::string& part : {feature_names(entry.required, false), missing, std::string("generic")}) {
      EXPECT_NE(chosen.status().message().find(part), std::string::npos) << chosen.status().message();
    }
  }
  if (!refused) GTEST_SKIP() << "this machine runs every table";
}

TEST(Dispatch, ABetterTableNeedsMore) {
  size_t last = std::numeric_limits<size_t>::max();
  for (const TableEntry& entry : all_tables()) {
    EXPECT_LT(entry.required.size(), last) << entry.name;
    last = entry.required.size();
  }
}

}  // namespace
}  // namespace varve::kernels::testing
