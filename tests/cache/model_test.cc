// Random operations on a cache of about 8 pages against the reference model; everything is compared after each one.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "reference_model.h"
#include "testing.h"

namespace varve::cache {
namespace {

constexpr int kSequences = 12000 / testing::kSanitizerSlowdown;

constexpr uint32_t kKinds = 40, kOperations = kKinds * 64 * 64;

/// One operation, spelled by one number so that sequences shrink well.
std::string apply(testing::ReferenceModel& model, uint32_t op) {
  const uint32_t kind = op % kKinds, a = op / kKinds % 64, b = op / (kKinds * 64) % 64;
  const int tokens = static_cast<int>(b % 14);
  switch (kind) {
    case 0:
    case 1: return model.start();
    case 2:
    case 3: return model.fork(a);
    case 4: return model.finish(a, false);
    case 5: return model.finish(a, b % 2 == 0);
    case 6:
    case 7: return model.truncate(a, static_cast<int>(b % 32));
    case 8:
    case 9: return model.read(op / kKinds);
    case 10:
    case 11:
    case 12: return model.drop_guard(a);
    case 13:
    case 14:
    case 15:
    case 16: return model.retier(a, static_cast<Tier>(b % kTiers));
    case 17:
    case 18: return model.publish(a);
    case 19: return model.abandon(a);
    case 20:
    case 21:
    case 22: return model.settle(a, tokens);
    case 23:
    case 24: return model.reserve(a, tokens);
    case 25: return model.reserve(a, 1000 * tokens);
    case 26: return model.hold(a);
    case 27:
    case 28: return model.seal(a, b % 2 == 0);
    case 29: return model.release(a, b % 8 == 0);
    case 30:
    case 31: return model.start_prefix(a, static_cast<int>(b % 3 * 4 + 4), 0);
    case 32:
      return b % 2 == 0 ? model.start_prefix(a, static_cast<int>(b % 14), b / 14)
                        : model.fork_at(a, static_cast<int>(b % 24));
    case 33: return model.fork_at(a, static_cast<int>(b % 3 * 4 + 4));
    default: {
      std::string wrong = model.reserve(a, tokens);
      return wrong.empty() ? model.settle(a, tokens) : wrong;
    }
  }
}

Config config_of(uint32_t shape) {
  Config config = shape & 1 ? testing::two_class_config(8) : testing::small_config(8);
  config.slab_bytes = shape & 2 ? 0 : 1024;  // 0: one slot a slab, where the model predicts refusals exactly
  if (shape & 4) config.classes[0].slot_bytes[static_cast<size_t>(Tier::kAnchor)] = testing::kRecentBytes;
  if (shape & 8) config.classes[0].strip_bytes = 0;
  if (shape & 16) config.budget_bytes *= 4;  // slabs of several slots
  if (shape & 32) config.classes[0].sink_bytes = config.classes[0].strip_bytes / 4;
  return config;
}

TEST(CacheModel, RandomOperationsAgreeWithTheModel) {
  size_t sequences = 0, operations = 0, refusals = 0, published = 0, orphans = 0, drained = 0;
  size_t prefix_starts = 0, revived = 0, cached_moves = 0;
  const auto property = [&](uint32_t shape, const std::vector<uint32_t>& ops) {
    testing::ReferenceModel model(config_of(shape));
    for (size_t i = 0; i < ops.size(); ++i) {
      std::string wrong = apply(model, ops[i]);
      if (wrong.empty()) wrong = model.compare();
      if (!wrong.empty()) RC_FAIL("operation " + std::to_string(i) + ": " + wrong);
    }
    ++sequences;
    operations += ops.size();
    refusals += model.refusals();
    published += model.published();
    orphans += model.orphans();
    drained += model.drained();
    prefix_starts += model.prefix_starts();
    revived += model.revived();
    cached_moves += model.cached_moves();
  };
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = kSequences;
  rc::detail::TestMetadata metadata;
  metadata.id = metadata.description = "cache against model";
  const auto result = rc::detail::checkTestable(
      [&] {
        // Full-range numbers at every size; sequences of up to 200 operations.
        const auto shape = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint32_t>(0, 64));
        const auto op = rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint32_t>(0, kOperations));
        const auto ops = *rc::gen::scale(2.0, rc::gen::container<std::vector<uint32_t>>(op));
        property(shape, ops);
      },
      metadata, params);
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  ASSERT_TRUE(result.is<rc::detail::SuccessResult>()) << text.str();
  std::cout << sequences << " sequences, " << operations << " operations, " << refusals << " refusals, " << published
            << " publications, " << orphans << " without an owner, " << drained << " releases that waited, "
            << prefix_starts << " starts from a prefix, " << revived << " cached pages taken up again, " << cached_moves
            << " moved\n";
  // The generator must reach what the test is about.
  EXPECT_GE(sequences, static_cast<size_t>(kSequences));
  EXPECT_GT(refusals, sequences / 10);
  EXPECT_GT(published, sequences / 10);
  EXPECT_GT(orphans, 0u);
  EXPECT_GT(drained, 0u);
  EXPECT_GT(prefix_starts, sequences / 10);
  EXPECT_GT(revived, sequences / 100);
  EXPECT_GT(cached_moves, 0u);
}

}  // namespace
}  // namespace varve::cache
