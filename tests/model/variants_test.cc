// Every architecture and RoPE variant on small random models, against libllama: what no downloaded model covers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "model/executor.h"
#include "model/model.h"
#include "support/compare.h"
#include "support/oracle.h"
#include "support/step_runner.h"
#include "support/tiny_model.h"

namespace varve::model {
namespace {

using testing::metadata_key;
using testing::TinySpec;

/// Mean KL (nats) allowed where libllama's own variants agree better than this.
constexpr double kRoundingKl = 1e-6;

std::string path_for(const std::string& name) {
  const auto directory = std::filesystem::temp_directory_path() / "varve-variants";
  std::filesystem::create_directories(directory);
  return (directory / (name + ".gguf")).string();
}

struct Variant {
  std::string name;
  TinySpec spec;
};

void PrintTo(const Variant& v, std::ostream* out) { *out << v.name; }

std::vector<Variant> variants() {
  std::vector<Variant> all;
  const auto add = [&](std::string name, TinySpec spec) { all.push_back({std::move(name), std::move(spec)}); };
  add("llama", {});
  add("llama_tied_q8", {.tokenizer = "gpt2", .matrix_type = GGML_TYPE_Q8_0, .tied = true});
  add("llama_repacked_q4_k", {.matrix_type = GGML_TYPE_Q4_K});
  add("llama_bias_head_dim_128", {.heads = 2, .kv_heads = 2, .head_dim = 128, .qkv_bias = true});
  add("llama_rope_freqs", {.rope_freqs = true});
  add("qwen2_bias", {.architecture = "qwen2", .tokenizer = "gpt2", .kv_heads = 1, .qkv_bias = true});
  add("qwen3", {.architecture = "qwen3", .tokenizer = "gpt2", .head_dim = 128});
  add("gemma3", {.architecture = "gemma3", .layers = 7, .tied = true});
  TinySpec yarn{.architecture = "qwen2", .tokenizer = "gpt2"};
  yarn.edit_metadata = [yarn](gguf_context* c) {
    gguf_set_val_str(c, metadata_key(yarn, "rope.scaling.type").c_str(), "yarn");
    gguf_set_val_f32(c, metadata_key(yarn, "rope.scaling.factor").c_str(), 4.0f);
    gguf_set_val_u32(c, metadata_key(yarn, "rope.scaling.original_context_length").c_str(), 1024);
  };
  add("qwen2_yarn", yarn);
  TinySpec linear;
  linear.edit_metadata = [linear](gguf_context* c) {
    gguf_set_val_f32(c, metadata_key(linear, "rope.scaling.factor").c_str(), 2.5f);
  };
  add("llama_linear_scale", linear);
  TinySpec soft{.architecture = "gemma3", .layers = 3};
  soft.edit_metadata = [soft](gguf_context* c) {
    gguf_set_val_f32(c, metadata_key(soft, "final_logit_softcapping").c_str(), 5.0f);
    gguf_set_val_u32(c, metadata_key(soft, "attention.sliding_window_pattern").c_str(), 2);
    gguf_set_val_f32(c, metadata_key(soft, "rope.freq_base").c_str(), 1e6f);
    gguf_set_val_f32(c, metadata_key(soft, "rope.scaling.factor").c_str(), 8.0f);
  };
  add("gemma3_softcap_pattern_scale", soft);
  TinySpec full{.architecture = "gemma3"};
  full.edit_metadata = [full](gguf_context* c) {
    gguf_set_val_u32(c, metadata_key(full, "attention.sliding_window").c_str(), 0);
  };
  add("gemma3_without_window", full);
  return all;
}

class Variants : public ::testing::TestWithParam<Variant> {};

TEST_P(Variants, AgreesWithLibllama) {
  const std::string path = path_for(GetParam().name);
  ASSERT_TRUE(testing::write_tiny_model(path, GetParam().spec).ok());
  auto model = Model::load(path, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::vector<int32_t> prompt;
  for (int i = 0; i < 100; ++i) prompt.push_back((i * 37 + i * i) % (*model)->info().vocabulary);

  auto oracle = testing::Oracle::create(**model, {.context = 256, .threads = 1});
  auto flash = testing::Oracle::create(**model, {.context = 256, .threads = 1, .flash_attention = true});
  ASSERT_TRUE(oracle.ok() && flash.ok());
  auto reference = testing::decode_greedy(**oracle, prompt, 24);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  auto variant = testing::decode_forced(**flash, prompt, reference->continuation);
  ASSERT_TRUE(variant.ok()) << variant.status().message();
  // Quantised matrices round activations to 8 bits, which turns the last bit of attention into visible noise.
  const double floor = testing::distance(reference->logits, variant->logits).mean_kl;
  auto executor = Executor::create(*model, {.threads = 1, .max_rows = 128});
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  for (const size_t chunk : {100, 33, 1}) {
    auto ours = testing::run_forced(**executor, (*model)->info(), prompt, reference->continuation, chunk);
    ASSERT_TRUE(ours.ok()) << ours.status().message();
    const testing::Distance d = testing::distance(reference->logits, *ours);
    std::printf("%-30s chunk %3zu  mean KL %.3g (libllama's floor %.3g)  max |delta logit| %.3g\n",
                GetParam().name.c_str(), chunk, d.mean_kl, floor, d.max_delta_logit);
    EXPECT_LE(d.mean_kl, std::max(kRoundingKl, 2 * floor)) << "chunks of " << chunk;
  }
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(All, Variants, ::testing::ValuesIn(variants()),
                         [](const auto& info) { return info.param.name; });

TEST(ModelInfo, DescribesLayers) {
  const std::string path = path_for("info");
  TinySpec spec{.architecture = "gemma3", .layers = 7, .qkv_bias = true};
  spec.edit_metadata = [spec](gguf_context* c) {
    gguf_set_val_f32(c, metadata_key(spec, "rope.freq_base").c_str(), 1e6f);
    gguf_set_val_f32(c, metadata_key(spec, "rope.scaling.factor").c_str(), 8.0f);
  };
  ASSERT_TRUE(testing::write_tiny_model(path, spec).ok());
  auto model = Model::load(path, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelInfo& info = (*model)->info();
  ASSERT_EQ(info.kv_layers.size(), 7u);
  for (int l = 0; l < 7; ++l) {
    const LayerInfo& layer = info.kv_layers[static_cast<size_t>(l)];
    EXPECT_EQ(layer.layer, l);
    EXPECT_EQ(layer.q_heads, 4);
    EXPECT_EQ(layer.kv_heads, 2);
    EXPECT_EQ(layer.head_dim, 64);
    EXPECT_EQ(layer.softcap, 0);
    EXPECT_FLOAT_EQ(layer.scale, 0.125f);
    EXPECT_EQ(layer.window, l == 5 ? 0 : 24);
    EXPECT_TRUE(layer.neox);
    EXPECT_GT(layer.k_bias_norm, 0.0f);
    ASSERT_EQ(layer.theta.size(), 32u);
    const double base = l == 5 ? 1e6 : 1e4, scale = l == 5 ? 1.0 / 8 : 1.0;
    for (int p = 0; p < 32; ++p) {
      const double expected = scale * std::pow(base, -2.0 * p / 64);
      EXPECT_NEAR(layer.theta[static_cast<size_t>(p)] / expected, 1.0, 1e-6) << "layer " << l << " pair " << p;
    }
  }
  EXPECT_EQ(info.digest.size(), 64u);
  std::filesystem::remove(path);
}

/// Llama 3's table stretches low frequencies by up to 8 and leaves high ones alone; theta must carry it.
TEST(ModelInfo, ThetaIsDividedByFrequencyFactors) {
  const std::string plain = path_for("plain"), factored = path_for("factored");
  ASSERT_TRUE(testing::write_tiny_model(plain, {}).ok());
  ASSERT_TRUE(testing::write_tiny_model(factored, {.rope_freqs = true}).ok());
  auto a = Model::load(plain, {}), b = Model::load(factored, {});
  ASSERT_TRUE(a.ok() && b.ok());
  const auto& theta = (*a)->info().kv_layers[0].theta;
  const auto& divided = (*b)->info().kv_layers[0].theta;
  for (size_t p = 0; p < theta.size(); ++p) {
    EXPECT_LE(divided[p], theta[p]);
    EXPECT_GE(divided[p], theta[p] / 4.001f);
  }
  EXPECT_NE((*a)->info().digest, (*b)->info().digest);
  std::filesystem::remove(plain);
  std::filesystem::remove(factored);
}

/// YaRN at its ends: the fastest pair keeps its frequency, the slowest is divided by the factor.
TEST(ModelInfo, YarnRampsBetweenKeptAndScaled) {
  const std::string path = path_for("yarn");
  TinySpec spec{.architecture = "qwen2", .tokenizer = "gpt2"};
  spec.edit_metadata = [spec](gguf_context* c) {
    gguf_set_val_str(c, metadata_key(spec, "rope.scaling.type").c_str(), "yarn");
    gguf_set_val_f32(c, metadata_key(spec, "rope.scaling.factor").c_str(), 4.0f);
    gguf_set_val_u32(c, metadata_key(spec, "rope.scaling.original_context_length").c_str(), 1024);
  };
  ASSERT_TRUE(testing::write_tiny_model(path, spec).ok());
  auto model = Model::load(path, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto& theta = (*model)->info().kv_layers[0].theta;
  EXPECT_FLOAT_EQ(theta[0], 1.0f);
  EXPECT_NEAR(theta[31], std::pow(10000.0, -62.0 / 64) / 4, 1e-9);
  for (size_t p = 1; p < theta.size(); ++p) EXPECT_LT(theta[p], theta[p - 1]);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace varve::model
