// The whole dense engine against libllama on the same weights (docs: varve bench parity prints the same numbers).

#include "eval/parity.h"

#include <gtest/gtest.h>

#include "model/text.h"
#include "support/models.h"
#include "support/texts.h"

namespace varve::eval {
namespace {

void check(const std::string& path, int steps, std::vector<int> chunks) {
  const auto model = model::Model::load(path, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const std::string& text : {testing::english_text(), testing::code_text(), testing::cjk_text()}) {
    const auto tokens = model::tokenize(**model, text, true, false);
    ASSERT_TRUE(tokens.ok());
    ParityOptions options;
    options.threads = 1;
    options.steps = steps;
    options.chunks = chunks;
    const auto report = measure_parity(*model, *tokens, options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    std::printf("floors: flash %.3g, micro-batch %.3g; varve %.3g, max |delta logit| %.3g\n",
                report->flash_floor.mean_kl, report->micro_batch_floor.mean_kl, report->ours.mean_kl,
                report->ours.max_delta);
    EXPECT_GT(report->bound(), 0) << "libllama's variants agree to the bit: there is no floor to compare with";
    EXPECT_LE(report->ours.mean_kl, report->bound());
    EXPECT_EQ(report->greedy_differences_above_floor, 0);
    for (const auto& [chunk, d] : report->chunked) EXPECT_LE(d.mean_kl, report->bound()) << "chunks of " << chunk;
    chunks.clear();  // chunking does not depend on the text: once is enough
  }
}

TEST(EngineParity, SmolLm2) {
  VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
  check(path, 64, {7, 64, 512});
}

TEST(EngineParityLarge, Gemma3) {
  VARVE_MODEL_OR_SKIP(path, "gemma3-270m");
  check(path, 64, {64, 512});
}

TEST(EngineParityLarge, Qwen25Coder05b) {
  VARVE_MODEL_OR_SKIP(path, "qwen2.5-coder-0.5b");
  check(path, 64, {64, 512});
}

}  // namespace
}  // namespace varve::eval
