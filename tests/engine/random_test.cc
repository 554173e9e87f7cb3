// Random calls with everything on at once: scores, promotions from every source, prefix hits, forks, cuts, rewritten
// histories, tenants, budgets from far too small to roomy. After every call the pools' invariants hold, each session
// has the tokens it was fed, and sampled logits are those of a dense engine that reads the same tokens in one step.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "support/tiny_engine.h"

namespace varve {
namespace {

using testing::TinyEngine;
using testing::Tokens;

struct Coverage {
  std::map<std::string, uint64_t> promotions, fallbacks;
  uint64_t hits = 0, refused = 0, compared = 0;
  double worst_kl = 0;
};

constexpr double kWorstKl = 0.01;

/// One engine under random calls beside what its sessions must hold.
class RandomCalls {
 public:
  static constexpr int kContext = 700;

  RandomCalls(std::shared_ptr<model::Model> model, const EngineOptions& options, uint32_t seed)
      : model_(std::move(model)), options_(options), random_(seed), engine_(TinyEngine::make(model_, options)) {
    Profile dense = *Profile::named("dense");
    dense.page_tokens = 64;
    EngineOptions roomy = TinyEngine::options(dense);
    roomy.prefix_cache_bytes = 0;
    roomy.chunk_tokens = kContext;
    roomy.context_tokens = kContext;
    reference_ = TinyEngine::make(model_, roomy);
    // Texts that begin alike, so that prefixes are found and pages are shared.
    const Tokens base = TinyEngine::tokens(*engine_, kContext, seed);
    for (uint32_t i = 0; i < 3; ++i) {
      Tokens text(base.begin(), base.begin() + 200 * int(i));
      const Tokens own = TinyEngine::tokens(*engine_, kContext, seed + 1000 + i);
      text.insert(text.end(), own.begin(), own.end());
      texts_.push_back(std::move(text));
    }
  }

  void run(int calls) {
    for (int i = 0; i < calls && !::testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE("call " + std::to_string(i));
      call();
      check();
    }
  }

  Coverage coverage() const {
    Coverage out = coverage_;
    const EngineStats stats = engine_->stats();
    out.promotions = stats.promotions;
    out.fallbacks = stats.fallbacks;
    out.hits = stats.prefix.hits;
    return out;
  }

 private:
  struct Session {
    Tokens tokens;
    size_t text = 0;  ///< goes on with this text
  };

  int below(int n) { return int(random_() % uint32_t(n)); }
  SessionId any() { return std::next(sessions_.begin(), below(int(sessions_.size())))->first; }

  /// Text for `session`'s next n tokens.
  Tokens next(const Session& s, int n) const {
    const auto at = texts_[s.text].begin() + std::ptrdiff_t(s.tokens.size());
    return Tokens(at, at + n);
  }

  void open() {
    const size_t text = size_t(below(int(texts_.size())));
    const Tokens prompt(texts_[text].begin(), texts_[text].begin() + 1 + below(kContext));
    const auto opened = engine_->open(prompt, {.tenant = below(4) == 0 ? "other" : ""});
    if (!opened.ok()) return refused(opened.status());
    ASSERT_LT(opened->cached_tokens, int(prompt.size()));
    sessions_[opened->session] = {Tokens(prompt.begin(), prompt.begin() + opened->cached_tokens), text};
    if (below(2) == 0) feed(opened->session, std::min(200, int(prompt.size()) - opened->cached_tokens));
  }

  void fork() {
    const SessionId from = any();
    const auto child = engine_->fork(from);
    if (!child.ok()) return refused(child.status());
    sessions_[*child] = sessions_[from];
    sessions_[*child].text = size_t(below(int(texts_.size())));
  }

  void feed(SessionId id, int n) {
    Session& s = sessions_[id];
    n = std::min(n, kContext - int(s.tokens.size()));
    if (n == 0) return;
    const Tokens tokens = next(s, n);
    std::vector<float> logits;
    const Status status = engine_->feed(id, tokens, Logits::kLast, logits);
    if (!status.ok()) {
      // Chunks before the refused one have settled.
      const auto held = engine_->tokens(id);
      ASSERT_GE(held.size(), s.tokens.size());
      ASSERT_LT(held.size(), s.tokens.size() + tokens.size());
      s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.begin() + std::ptrdiff_t(held.size() - s.tokens.size()));
      return refused(status);
    }
    s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
    compare(s, logits);
  }

  /// One token for several sessions.
  void step() {
    std::vector<Feed> feeds;
    std::map<SessionId, Tokens> tokens;
    for (const auto& [id, s] : sessions_) {
      if (int(s.tokens.size()) == kContext || below(3) == 0) continue;
      tokens[id] = next(s, 1);
      feeds.push_back({id, tokens[id], Logits::kLast});
    }
    if (feeds.empty()) return;
    std::vector<float> logits;
    const Status status = engine_->step(feeds, logits);
    if (!status.ok()) return refused(status);
    for (auto& [id, t] : tokens) sessions_[id].tokens.push_back(t[0]);
    const size_t v = size_t(engine_->vocabulary());
    compare(sessions_[feeds[0].session], {logits.begin(), logits.begin() + std::ptrdiff_t(v)});
  }

  void truncate() {
    const SessionId id = any();
    Session& s = sessions_[id];
    const int want = below(int(s.tokens.size()) + 10);
    const auto kept = engine_->truncate(id, want);
    ASSERT_TRUE(kept.ok()) << kept.status().message();
    ASSERT_LE(*kept, std::min(want, int(s.tokens.size())));
    s.tokens.resize(size_t(*kept));
    s.text = size_t(below(int(texts_.size())));  // rewritten history
  }

  void mark() {
    const int begin = below(kContext - 1);
    EXPECT_TRUE(engine_->mark(any(), begin, begin + 1 + below(std::min(150, kContext - begin - 1))).ok());
  }

  void call() {
    if (sessions_.empty()) return open();
    switch (below(16)) {
      case 0:
      case 1: return sessions_.size() < 6 ? open() : finish();
      case 2: return sessions_.size() < 6 ? fork() : finish();
      case 3: return truncate();
      case 4:
      case 5: return mark();
      case 6: return finish();
      case 7:
      case 8: return feed(any(), 1 + below(200));
      default:
        for (int i = below(20); i >= 0; --i) step();
    }
  }

  void finish() {
    const SessionId id = any();
    engine_->finish(id);
    engine_->finish(id);
    sessions_.erase(id);
    std::vector<float> logits;
    const int32_t token = 1;
    EXPECT_EQ(engine_->feed(id, {&token, 1}, Logits::kLast, logits).code(), StatusCode::kInvalidArgument);
  }

  void refused(const Status& status) {
    ++coverage_.refused;
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  }

  void check() {
    const Status s = engine_->check();
    ASSERT_TRUE(s.ok()) << s.message();
    for (const auto& [id, session] : sessions_) {
      const auto held = engine_->tokens(id);
      ASSERT_TRUE(std::equal(held.begin(), held.end(), session.tokens.begin(), session.tokens.end()))
          << "session " << id;
    }
    EXPECT_LE(engine_->stats().kv.physical_bytes - engine_->stats().kv.scratch_bytes, options_.kv_budget_bytes);
  }

  void compare(const Session& s, const std::vector<float>& logits) {
    for (const float x : logits) ASSERT_TRUE(std::isfinite(x));
    if (below(6) != 0) return;
    const SessionId id = reference_->start().value();
    const auto expected = TinyEngine::feed(*reference_, id, s.tokens);
    reference_->finish(id);
    const double kl = TinyEngine::kl(expected, logits);
    coverage_.worst_kl = std::max(coverage_.worst_kl, kl);
    ++coverage_.compared;
  }

  std::shared_ptr<model::Model> model_;
  EngineOptions options_;
  std::mt19937 random_;
  std::unique_ptr<Engine> engine_, reference_;
  std::vector<Tokens> texts_;
  std::map<SessionId, Session> sessions_;
  Coverage coverage_;
};

TEST(RandomCallsTest, EverythingAtOnceHoldsItsInvariantsAndAnswers) {
  const auto model = TinyEngine::load();
  Coverage total;
  uint32_t seed = 0;
  for (const char* restore : {"recompute", "none", "host", "disk"}) {
    // Small: most calls are refused or relieved. Middle: sessions and promotions compete. Large: nothing is short.
    for (const size_t kilobytes : {900, 1700, 8192}) {
      SCOPED_TRACE(std::string(restore) + ", " + std::to_string(kilobytes) + " KiB, seed " + std::to_string(++seed));
      EngineOptions o = TinyEngine::options(TinyEngine::small_minima());
      o.profile.formats.stale1 = "k8v8";  // close to exact, so that a wrong page stands out
      o.profile.convert_tokens_per_step = 16;
      o.profile.scoring = {.on = true,
                           .anchor_tokens = 128,
                           .enter_ratio = 1.0,
                           .least_score = 0.5,
                           .leave_score = 0.5,
                           .dwell_tokens = 8,
                           .restore = restore,
                           .recompute_tokens_per_step = 16};
      o.context_tokens = RandomCalls::kContext;
      o.chunk_tokens = 96;
      o.kv_budget_bytes = kilobytes << 10;
      o.prefix_cache_bytes = o.kv_budget_bytes / 2;
      RandomCalls calls(model, o, seed);
      calls.run(60);
      if (HasFatalFailure()) return;
      const Coverage c = calls.coverage();
      for (const auto& [how, n] : c.promotions) total.promotions[how] += n;
      for (const auto& [why, n] : c.fallbacks) total.fallbacks[why] += n;
      total.hits += c.hits;
      total.refused += c.refused;
      total.compared += c.compared;
      total.worst_kl = std::max(total.worst_kl, c.worst_kl);
      if (kilobytes == 8192) {
        EXPECT_EQ(c.refused, 0u);
        EXPECT_FALSE(c.fallbacks.contains("demoted_pressure"));
      }
    }
  }
  EXPECT_LE(total.worst_kl, kWorstKl);
  EXPECT_GT(total.compared, 100u);
  EXPECT_GT(total.hits, 10u);
  EXPECT_GT(total.refused, 10u);
  for (const char* how : {"recompute", "restore", "lossy"}) EXPECT_GT(total.promotions[how], 10u) << how;
  EXPECT_GT(total.fallbacks["demoted_pressure"], 0u);
  RecordProperty("worst_kl", std::to_string(total.worst_kl));
}

/// The bound above tells a page of other tokens from the right one.
TEST(RandomCallsTest, AWrongPageIsFarAboveTheBound) {
  Profile dense = *Profile::named("dense");
  EngineOptions o = TinyEngine::options(dense);
  o.chunk_tokens = 1024;
  const auto e = TinyEngine::make(TinyEngine::load(), o);
  for (const int length : {200, 400, 700}) {
    const Tokens right = TinyEngine::tokens(*e, length, 1), page = TinyEngine::tokens(*e, 64, 2);
    Tokens wrong = right;
    std::copy(page.begin(), page.end(), wrong.begin() + 128);
    const SessionId a = e->start().value(), b = e->start().value();
    EXPECT_GT(TinyEngine::kl(TinyEngine::feed(*e, a, right), TinyEngine::feed(*e, b, wrong)), 4 * kWorstKl) << length;
  }
}

}  // namespace
}  // namespace varve
