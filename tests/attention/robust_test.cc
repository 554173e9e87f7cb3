// NaN stays where it was attended to, empty cuts make none, and every bad view is refused with its numbers.

#include <gtest/gtest.h>

#include <cmath>

#include "poison.h"
#include "support.h"

namespace varve::attention::test {
namespace {

class Robust : public testing::TestWithParam<const kernels::Kernels*> {};

TEST_P(Robust, NanStaysWithThoseWhoAttend) {
  const auto check = [](const char* name, int window, bool key, int poisoned, int past, int rows) {
    ClassSpec spec;
    spec.tiers = {{format_of(name)}};
    spec.window = window;
    check_poison(*GetParam(), spec, {0}, name, key, poisoned, past, rows);
  };
  for (const char* name : {"f16", "fp8", "int8", "k4v3", "k2v2"}) {
    for (const bool key : {true, false}) {
      for (const int rows : {1, 4, 40}) {
        check(name, 0, key, 100, 700, rows);                     // a sealed tile
        check(name, 0, key, 690, 700, rows);                     // the open tile
        check(name, 0, key, 700 + rows / 2, 700, rows);          // a new row: causality
        check(name, 128, key, 700 - 128 + rows / 2, 700, rows);  // leaves the window on the way
        check(name, 128, key, 20, 700, rows);                    // nobody sees it
        check(name, 70, key, 2, 66, rows);                       // a sink, leaving the window
      }
    }
  }
}

// A window that ends inside the first cut, and one key alone.
TEST_P(Robust, NarrowWindows) {
  for (const int window : {1, 2, 64}) {
    for (const int rows : {1, 80}) {
      ClassSpec spec;
      spec.tiers = {{format_of("k4v3", Centre::kRotary)}};
      spec.window = window;
      const TestClass cls(spec);
      TestSequence sequence(cls, 512 + rows, 3);
      sequence.fill(512, {0});
      ClassAttention attention(cls.geometry(), *GetParam(), 1);
      const Part part{&sequence, 512, rows};
      const StepOutput output = run_step(attention, {part}, 1);
      EXPECT_LE(worst_error(output, part, 0, sample_rows(512, rows, 1)), 1e-3) << window << " " << rows;
    }
  }
}

// Scores far beyond the range of exp: one key takes all, none overflows.
TEST_P(Robust, HugeScores) {
  ClassSpec spec;
  spec.tiers = {{format_of("int8")}};
  const TestClass cls(spec);
  for (const int rows : {1, 20}) {
    TestSequence sequence(cls, 600 + rows, 3, 0.0f);
    for (float& x : sequence.rows(0).q) x *= 1000.0f;
    sequence.fill(600, {0});
    ClassAttention attention(cls.geometry(), *GetParam(), 1);
    const Part part{&sequence, 600, rows};
    const StepOutput output = run_step(attention, {part}, 1);
    for (const float x : output[0]) ASSERT_TRUE(std::isfinite(x));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Robust, testing::ValuesIn(kernels::available()),
                         [](const auto& info) { return std::string(info.param->name); });

class BadInput : public testing::Test {
 protected:
  BadInput() {
    spec_.tiers = {{format_of("int8", Centre::kRotary)}, {format_of("k4v3", Centre::kRotary)}};
    cls_ = std::make_unique<TestClass>(spec_);
    sequence_ = std::make_unique<TestSequence>(*cls_, 700, 1);
    sequence_->fill(600, {1});
  }

  void expect_refused(const SequenceView& view, const std::string& part_of_message) {
    ClassAttention attention(cls_->geometry(), *kernels::available().front(), 1);
    const Status status = attention.plan(std::vector<SequenceView>{view});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(part_of_message), std::string::npos) << status.message();
    attention.partial(1, nullptr, 0, 1);  // nothing is planned: does nothing
  }
  void expect_refused(const ClassGeometry& geometry, const std::string& part_of_message) {
    const Status status = check(geometry);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(part_of_message), std::string::npos) << status.message();
    ClassAttention attention(geometry, *kernels::available().front(), 1);
    EXPECT_EQ(attention.plan({}).message(), status.message());
  }

  ClassSpec spec_;
  std::unique_ptr<TestClass> cls_;
  std::unique_ptr<TestSequence> sequence_;
};

TEST_F(BadInput, Views) {
  const SequenceView good = sequence_->view(0, 600, 10);
  SequenceView view = good;
  view.rows = -1;
  expect_refused(view, "-1 rows");
  view = good;
  view.rows = 200;
  expect_refused(view, "pages end at 768, its rows at 800");
  view = good;
  view.pages.clear();
  expect_refused(view, "no pages for 10 rows");
  view = good;
  view.pages.erase(view.pages.begin() + 1);
  expect_refused(view, "at 512 where one of 256 at 256");
  view = good;
  view.pages.erase(view.pages.begin());
  expect_refused(view, "start at 256 but layer 1 attends from position 0");
  view = good;
  view.pages.back().layout = &cls_->slot(1);
  expect_refused(view, "page at 512 is to be written from position 600");
  view = good;
  view.pages[1].slot = nullptr;
  expect_refused(view, "page at 256 has no slot");
  view = good;
  view.strip = nullptr;
  expect_refused(view, "no strip but layer 1 needs one");
}

TEST_F(BadInput, Geometry) {
  ClassGeometry geometry = cls_->geometry();
  geometry.recent = nullptr;
  expect_refused(geometry, "no recent layout");
  geometry = cls_->geometry();
  geometry.strip = nullptr;
  expect_refused(geometry, "needs a strip");
  geometry = cls_->geometry();
  geometry.layers[0].q_heads = 17;
  expect_refused(geometry, "17 query heads per KV head, at most 16");
  geometry = cls_->geometry();
  geometry.layers[0].head.rotation = nullptr;
  expect_refused(geometry, "needs a rotation");
  geometry = cls_->geometry();
  geometry.layers[0].head.rotary = nullptr;
  expect_refused(geometry, "rotary table");
  geometry = cls_->geometry();
  geometry.layers[0].window = -5;
  expect_refused(geometry, "window -5");
  geometry = cls_->geometry();
  geometry.layers.push_back(geometry.layers[0]);
  expect_refused(geometry, "2 layers");
}

}  // namespace
}  // namespace varve::attention::test
