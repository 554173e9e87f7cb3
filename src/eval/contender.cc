#include "eval/contender.h"

#include <chrono>
#include <thread>

#include "base/clock.h"

namespace varve::eval {
namespace {

class OurContender final : public Contender {
 public:
  OurContender(std::unique_ptr<Engine> engine, int sequences)
      : engine_(std::move(engine)), sequences_(static_cast<size_t>(sequences)) {}

  Status prefill(std::span<const int32_t> tokens) override {
    for (const SessionId id : base_) engine_->finish(id);
    base_.clear();
    while (base_.size() < sequences_) {
      const auto id = engine_->start();
      if (!id.ok()) return id.status();
      base_.push_back(*id);
      if (tokens.empty()) continue;
      if (Status s = engine_->feed(*id, tokens, Logits::kLast, logits_); !s.ok()) return s;
    }
    return {};
  }
  Status extend(std::span<const int32_t> tokens) override {
    return engine_->feed(base_.front(), tokens, Logits::kLast, logits_);
  }
  Status begin() override {
    for (const SessionId id : base_) {
      const auto fork = engine_->fork(id);
      if (!fork.ok()) return fork.status();
      turn_.push_back(*fork);
    }
    return {};
  }
  Status decode(int32_t token) override {
    std::vector<Feed> feeds;
    for (const SessionId id : turn_) feeds.push_back({id, {&token, 1}, Logits::kLast});
    return engine_->step(feeds, logits_);
  }
  Status end() override {
    for (const SessionId id : turn_) engine_->finish(id);
    turn_.clear();
    return {};
  }

 private:
  std::unique_ptr<Engine> engine_;
  size_t sequences_;
  std::vector<SessionId> base_, turn_;
  std::vector<float> logits_;
};

class PeerContender final : public Contender {
 public:
  PeerContender(Peer peer, int sequences) : peer_(std::move(peer)), sequences_(sequences) {}

  Status prefill(std::span<const int32_t> tokens) override {
    if (Status s = peer_.truncate(0); !s.ok()) return s;
    base_ = static_cast<int>(tokens.size());
    if (tokens.empty()) return {};
    if (Status s = peer_.feed(tokens); !s.ok()) return s;
    if (sequences_ > 1) peer_.copy_first();
    return {};
  }
  Status extend(std::span<const int32_t> tokens) override {
    base_ += static_cast<int>(tokens.size());
    return peer_.feed(tokens);
  }
  Status begin() override { return {}; }
  Status decode(int32_t token) override { return sequences_ > 1 ? peer_.feed_each(token) : peer_.feed({&token, 1}); }
  Status end() override { return peer_.truncate(base_); }

 private:
  Peer peer_;
  int sequences_;
  int base_ = 0;
};

}  // namespace

void let_threads_sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(500)); }

Result<double> timed_decode(Contender& contender, std::span<const int32_t> tokens) {
  if (Status s = contender.begin(); !s.ok()) return s;
  let_threads_sleep();
  const double start = now_s();
  for (const int32_t token : tokens) {
    if (Status s = contender.decode(token); !s.ok()) return s;
  }
  const double seconds = now_s() - start;
  if (Status s = contender.end(); !s.ok()) return s;
  return seconds;
}

Result<std::unique_ptr<Contender>> our_contender(const std::shared_ptr<model::Model>& model,
                                                 const OurContenderOptions& options) {
  EngineOptions engine_options;
  engine_options.profile = options.profile;
  engine_options.threads = options.threads;
  engine_options.kernel = options.kernel;
  auto engine = Engine::create(model, engine_options);
  if (!engine.ok()) return engine.status();
  return std::unique_ptr<Contender>(new OurContender(std::move(*engine), options.sequences));
}

Result<std::unique_ptr<Contender>> peer_contender(const std::shared_ptr<model::Model>& model,
                                                  const PeerOptions& options) {
  auto peer = Peer::create(model, options);
  if (!peer.ok()) return peer.status();
  return std::unique_ptr<Contender>(new PeerContender(std::move(*peer), options.sequences));
}

}  // namespace varve::eval
