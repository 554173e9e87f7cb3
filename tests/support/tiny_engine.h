#pragma once
// Engines over a small random model: the whole path in milliseconds, for sweeps and odd cases.

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "eval/divergence.h"
#include "model/model.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "varve/engine.h"

namespace varve::testing {

using Tokens = std::vector<int32_t>;

class TinyEngine {
 public:
  static std::shared_ptr<model::Model> load(const TinySpec& spec = {}) {
    static TempDir directory;
    // Models are mapped: a file in use must not be written again.
    const std::string path = directory.file(spec.architecture + std::to_string(spec.seed) + ".gguf");
    EXPECT_TRUE(write_tiny_model(path, spec).ok());
    auto model = model::Model::load(path, {});
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? *model : nullptr;
  }

  /// The architecture with what is its own: gemma3's layers without a window, qwen2's key bias.
  static std::shared_ptr<model::Model> load_typical(const std::string& architecture) {
    return load({.architecture = architecture,
                 .layers = architecture == "gemma3" ? 7 : 3,
                 .qkv_bias = architecture == "qwen2"});
  }

  /// Pages of 64, one of them recent: a few hundred tokens pass through every tier.
  static Profile small_minima() {
    Profile p = *Profile::named("minima");
    p.name = "small-minima";
    p.page_tokens = 64;
    p.recent_tokens = 64;
    return p;
  }

  static EngineOptions options(const Profile& profile) {
    EngineOptions o;
    o.profile = profile;
    o.threads = 1;
    o.chunk_tokens = 256;
    o.kv_budget_bytes = size_t{256} << 20;
    o.prefix_cache_bytes = size_t{64} << 20;
    o.poison_freed = true;
    return o;
  }

  static std::unique_ptr<Engine> make(const std::shared_ptr<model::Model>& model, const EngineOptions& options) {
    auto engine = Engine::create(model, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  /// Random tokens, the same for the same seed.
  static Tokens tokens(const Engine& engine, int n, uint32_t seed) {
    std::mt19937 random(seed);
    Tokens out;
    for (int i = 0; i < n; ++i) out.push_back(int32_t(random() % uint32_t(engine.vocabulary())));
    return out;
  }

  static std::vector<float> feed(Engine& engine, SessionId session, std::span<const int32_t> tokens) {
    std::vector<float> logits;
    const Status s = engine.feed(session, tokens, Logits::kLast, logits);
    EXPECT_TRUE(s.ok()) << s.message();
    return logits;
  }

  static double kl(const std::vector<float>& p, const std::vector<float>& q) {
    return eval::compare_logits(p, q, -1).kl;
  }
};

}  // namespace varve::testing
