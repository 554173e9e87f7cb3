#include "eval/run/arm.h"

#include <algorithm>

#include "eval/peer.h"

namespace varve::eval {
namespace {

class OurArm final : public Arm {
 public:
  explicit OurArm(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  Status read(std::span<const int32_t> tokens, const std::function<bool(int)>& on_tokens) override {
    forget();
    const auto session = engine_->start();
    if (!session.ok()) return session.status();
    base_ = *session;
    if (tokens.empty()) return {};
    int before = 0;
    Status s = engine_->feed(base_, tokens, Logits::kNone, logits_, [&](int done, int) {
      const int fed = done - before;
      before = done;
      return !on_tokens || on_tokens(fed);
    });
    return s.ok() ? settle() : s;
  }

  Status adopt(const Arm& reference) override {
    forget();
    const auto* dense = dynamic_cast<const OurArm*>(&reference);
    if (dense == nullptr) return unsupported("mode A needs a dense arm of varve to take rows from");
    const auto session = engine_->adopt(*dense->engine_, dense->base_);
    if (!session.ok()) return session.status();
    base_ = *session;
    return settle();
  }

  Status step(std::span<const int32_t> tokens, bool want_rows, std::vector<float>& rows) override {
    return engine_->feed(base_, tokens, want_rows ? Logits::kAll : Logits::kNone, rows);
  }

  Status ask(std::span<const int32_t> question) override {
    const auto fork = engine_->fork(base_);
    if (!fork.ok()) return fork.status();
    branch_ = *fork;
    return engine_->feed(branch_, question, Logits::kLast, logits_);
  }

  std::span<const float> logits() const override { return logits_; }

  Status say(int32_t token) override { return engine_->feed(branch_, {&token, 1}, Logits::kLast, logits_); }

  Status look_ahead(std::span<const int32_t> tokens, std::vector<float>& rows) override {
    rows.clear();
    if (tokens.empty()) return {};
    const auto fork = engine_->fork(branch_);
    if (!fork.ok()) return fork.status();
    Status s = engine_->feed(*fork, tokens, Logits::kAll, rows);
    engine_->finish(*fork);
    return s;
  }

  Status end() override {
    engine_->finish(branch_);
    branch_ = 0;
    return {};
  }

  ArmBytes bytes() const override {
    const KvStats kv = engine_->stats().kv;
    return {.kv = kv, .allocated_bytes = kv.physical_bytes};
  }

  Fallbacks fallbacks() const override { return engine_->stats().fallbacks; }

 private:
  /// A fork finishes the conversions that wait: what is held from now on is what questions find.
  Status settle() {
    const auto fork = engine_->fork(base_);
    if (!fork.ok()) return fork.status();
    engine_->finish(*fork);
    return {};
  }

  void forget() {
    engine_->finish(branch_);
    engine_->finish(base_);
    branch_ = base_ = 0;
  }

  std::unique_ptr<Engine> engine_;
  SessionId base_ = 0, branch_ = 0;  ///< 0: none
  std::vector<float> logits_;
};

class PeerArm final : public Arm {
 public:
  PeerArm(std::shared_ptr<model::Model> model, Peer peer, std::string kv_type, int batch_tokens)
      : model_(std::move(model)), peer_(std::move(peer)), kv_type_(std::move(kv_type)), batch_(batch_tokens) {}

  Status read(std::span<const int32_t> tokens, const std::function<bool(int)>& on_tokens) override {
    base_ = 0;
    if (Status s = peer_.truncate(0); !s.ok()) return s;
    for (size_t done = 0; done < tokens.size();) {
      const size_t n = std::min(tokens.size() - done, static_cast<size_t>(batch_));
      if (Status s = peer_.feed(tokens.subspan(done, n)); !s.ok()) return s;
      done += n;
      if (on_tokens && !on_tokens(static_cast<int>(n))) return Status(StatusCode::kCancelled, "stopped");
    }
    base_ = peer_.length();
    return {};
  }

  Status adopt(const Arm&) override { return unsupported("libllama writes its own cache: a peer has no mode A"); }

  Status step(std::span<const int32_t> tokens, bool want_rows, std::vector<float>& rows) override {
    if (Status s = feed_rows(tokens, want_rows, rows); !s.ok()) return s;
    base_ = peer_.length();
    return {};
  }

  Status ask(std::span<const int32_t> question) override { return feed_last(question); }
  std::span<const float> logits() const override { return logits_; }
  Status say(int32_t token) override { return feed_last({&token, 1}); }

  Status look_ahead(std::span<const int32_t> tokens, std::vector<float>& rows) override {
    const int length = peer_.length();
    if (Status s = feed_rows(tokens, true, rows); !s.ok()) return s;
    return peer_.truncate(length);
  }

  Status end() override { return peer_.truncate(base_); }

  ArmBytes bytes() const override {
    const double share = peer_bits(kv_type_) / 16;
    ArmBytes out;
    out.kv.dense_bytes = dense_kv_bytes(model_->info(), peer_.length());
    out.kv.physical_bytes = static_cast<size_t>(double(out.kv.dense_bytes) * share);
    // A block of 32 values has a scale of 16 bits.
    out.kv.metadata_bytes = kv_type_ == "f16" ? 0 : out.kv.dense_bytes / 32;
    out.kv.payload_bytes = out.kv.physical_bytes - out.kv.metadata_bytes;
    out.kv.tiers.push_back({.tier = "llama.cpp",
                            .format = kv_type_,
                            .pages = 0,
                            .tokens = peer_.length(),
                            .bytes = out.kv.physical_bytes});
    out.allocated_bytes = peer_.kv_bytes();
    return out;
  }

  Fallbacks fallbacks() const override { return {}; }

 private:
  Status feed_last(std::span<const int32_t> tokens) {
    if (Status s = peer_.feed(tokens); !s.ok()) return s;
    const auto row = peer_.logits();
    logits_.assign(row.begin(), row.end());
    return {};
  }

  Status feed_rows(std::span<const int32_t> tokens, bool want_rows, std::vector<float>& rows) {
    rows.clear();
    for (size_t done = 0; done < tokens.size();) {
      const size_t n = std::min(tokens.size() - done, static_cast<size_t>(batch_));
      if (Status s = peer_.feed(tokens.subspan(done, n), want_rows); !s.ok()) return s;
      for (size_t i = 0; want_rows && i < n; ++i) {
        const auto row = peer_.logits(static_cast<int>(i));
        rows.insert(rows.end(), row.begin(), row.end());
      }
      done += n;
    }
    return {};
  }

  std::shared_ptr<model::Model> model_;
  Peer peer_;
  std::string kv_type_;
  int batch_;
  int base_ = 0;
  std::vector<float> logits_;
};

}  // namespace

size_t dense_kv_bytes(const model::ModelInfo& info, int64_t tokens) {
  size_t bytes = 0;
  for (const model::LayerInfo& layer : info.kv_layers) {
    const int64_t held = layer.window > 0 ? std::min<int64_t>(tokens, layer.window) : tokens;
    bytes += static_cast<size_t>(held) * static_cast<size_t>(layer.kv_heads) * static_cast<size_t>(layer.head_dim) * 2 *
             sizeof(uint16_t);
  }
  return bytes;
}

Result<std::unique_ptr<Arm>> make_arm(const std::shared_ptr<model::Model>& model, const ArmSpec& spec,
                                      const ArmOptions& options) {
  const int chunk = spec.chunk_tokens > 0 ? spec.chunk_tokens : options.chunk_tokens;
  if (spec.kind == ArmKind::kPeer) {
    PeerOptions peer_options;
    peer_options.context_tokens = options.context_tokens;
    peer_options.threads = options.threads;
    peer_options.batch_tokens = chunk;
    peer_options.micro_batch_tokens = chunk;
    peer_options.flash_attention = true;  // quantised V needs it, and one setting serves all peers
    peer_options.kv_type = spec.kv_type;
    auto peer = Peer::create(model, peer_options);
    if (!peer.ok()) return Status(peer.status().code(), "arm " + spec.name + ": " + peer.status().message());
    return std::unique_ptr<Arm>(new PeerArm(model, std::move(*peer), spec.kv_type, chunk));
  }
  EngineOptions engine_options;
  engine_options.profile = spec.profile;
  engine_options.threads = options.threads;
  engine_options.context_tokens = options.context_tokens;
  engine_options.chunk_tokens = chunk;
  engine_options.kernel = options.kernel;
  engine_options.weight_gemm = options.weight_gemm;
  auto engine = Engine::create(model, engine_options);
  if (!engine.ok()) return Status(engine.status().code(), "arm " + spec.name + ": " + engine.status().message());
  return std::unique_ptr<Arm>(new OurArm(std::move(*engine)));
}

}  // namespace varve::eval
