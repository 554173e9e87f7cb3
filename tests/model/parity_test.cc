// The graphs against libllama on the same weights: the distance must stay within what libllama's own variants (flash
// attention, micro-batch size) differ by.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "model/executor.h"
#include "model/model.h"
#include "model/text.h"
#include "support/compare.h"
#include "support/models.h"
#include "support/oracle.h"
#include "support/step_runner.h"
#include "support/texts.h"

namespace varve::model {
namespace {

using testing::Decoded;
using testing::distance;
using testing::Distance;
using testing::Oracle;

constexpr int kPromptTokens = 700;
constexpr int kSteps = 64;
/// ggml's barrier spins, so that more threads than free cores make a run many times slower. Determinism over thread
/// counts has its own test.
constexpr int kThreads = 1;

struct Prompt {
  const char* name;
  std::function<std::string()> text;
};
const Prompt kPrompts[] = {
    {"english", testing::english_text}, {"code", testing::code_text}, {"cjk", testing::cjk_text}};

void print(const char* model, const char* prompt, const char* what, const Distance& d) {
  std::printf("%-20s %-8s %-26s mean KL %.3g  max KL %.3g  max |delta logit| %.3g\n", model, prompt, what, d.mean_kl,
              d.max_kl, d.max_delta_logit);
}

/// Same greedy choices, except where libllama's own lead is smaller than its variants differ.
void expect_same_choices(const Decoded& reference, const std::vector<std::vector<float>>& ours, double floor_delta) {
  for (size_t i = 0; i < ours.size(); ++i) {
    const testing::Top theirs = testing::top(reference.logits[i]);
    const int token = testing::top(ours[i]).token;
    if (token != theirs.token) {
      EXPECT_LT(theirs.margin, floor_delta) << "step " << i << ": " << token << " instead of " << theirs.token;
    }
  }
}

void check_prompt(const std::shared_ptr<Model>& model, const char* key, const Prompt& prompt,
                  const std::vector<size_t>& chunks) {
  Result<std::vector<int32_t>> tokens = tokenize(*model, prompt.text(), true, false);
  ASSERT_TRUE(tokens.ok()) << tokens.status().message();
  ASSERT_GE(tokens->size(), static_cast<size_t>(kPromptTokens)) << prompt.name;
  tokens->resize(kPromptTokens);

  const auto oracle = [&](int micro_batch, bool flash) {
    return Oracle::create(*model,
                          {.context = 1024, .micro_batch = micro_batch, .threads = kThreads, .flash_attention = flash});
  };
  auto plain = oracle(512, false), flash = oracle(512, true), small = oracle(64, false);
  ASSERT_TRUE(plain.ok() && flash.ok() && small.ok());
  Result<Decoded> reference = testing::decode_greedy(**plain, *tokens, kSteps);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  Result<Decoded> with_flash = testing::decode_forced(**flash, *tokens, reference->continuation);
  Result<Decoded> with_small = testing::decode_forced(**small, *tokens, reference->continuation);
  ASSERT_TRUE(with_flash.ok() && with_small.ok());
  const Distance flash_floor = distance(reference->logits, with_flash->logits);
  const Distance small_floor = distance(reference->logits, with_small->logits);
  print(key, prompt.name, "libllama flash attention", flash_floor);
  print(key, prompt.name, "libllama micro-batch 64", small_floor);
  const double bound = 2 * std::max(flash_floor.mean_kl, small_floor.mean_kl);
  const double floor_delta = std::max(flash_floor.max_delta_logit, small_floor.max_delta_logit);
  ASSERT_GT(bound, 0) << "libllama's variants agree to the bit: there is no floor to compare with";

  auto executor = Executor::create(model, {.threads = kThreads, .max_rows = kPromptTokens});
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  const auto varve = [&](size_t chunk) {
    return testing::run_forced(**executor, model->info(), *tokens, reference->continuation, chunk);
  };
  auto one_shot = varve(kPromptTokens);
  ASSERT_TRUE(one_shot.ok()) << one_shot.status().message();
  const Distance ours = distance(reference->logits, *one_shot);
  print(key, prompt.name, "varve", ours);
  EXPECT_LE(ours.mean_kl, bound);
  expect_same_choices(*reference, *one_shot, floor_delta);

  for (const size_t chunk : chunks) {
    auto chunked = varve(chunk);
    ASSERT_TRUE(chunked.ok()) << chunked.status().message();
    const Distance d = distance(*one_shot, *chunked);
    print(key, prompt.name, ("varve, chunks of " + std::to_string(chunk)).c_str(), d);
    EXPECT_LE(d.mean_kl, bound) << "chunks of " << chunk;
  }
}

/// Chunking does not depend on the text, and the small sizes are slow: all of `chunks` on the first prompt only.
void check_model(const std::string& path, const char* key, const std::vector<size_t>& chunks) {
  auto model = Model::load(path, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const Prompt& prompt : kPrompts) {
    SCOPED_TRACE(prompt.name);
    check_prompt(*model, key, prompt, &prompt == &kPrompts[0] ? chunks : std::vector<size_t>{64});
  }
}

TEST(Parity, SmolLm2) {
  VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
  check_model(path, "smollm2-135m", {1, 7, 64, 512});
}

TEST(ParityLarge, Gemma3) {
  VARVE_MODEL_OR_SKIP(path, "gemma3-270m");
  check_model(path, "gemma3-270m", {7, 64, 512});
}

TEST(ParityLarge, Qwen25Coder05b) {
  VARVE_MODEL_OR_SKIP(path, "qwen2.5-coder-0.5b");
  check_model(path, "qwen2.5-coder-0.5b", {64, 512});
}

TEST(ParityLarge, Qwen25Coder15b) {
  VARVE_MODEL_OR_SKIP(path, "qwen2.5-coder-1.5b");
  check_model(path, "qwen2.5-coder-1.5b", {512});
}

}  // namespace
}  // namespace varve::model
