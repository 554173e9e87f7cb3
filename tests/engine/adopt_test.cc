// Sessions that take their rows from a dense engine: the formats' doing alone, by the engine's own rules.

#include <gtest/gtest.h>

#include <cmath>

#include "support/tiny_engine.h"

namespace varve {
namespace {

using testing::TinyEngine;
using testing::Tokens;

Profile profile(const std::string& name) { return *Profile::load(name); }

std::unique_ptr<Engine> engine(const std::shared_ptr<model::Model>& model, const Profile& p, int chunk = 256) {
  EngineOptions options = TinyEngine::options(p);
  options.chunk_tokens = chunk;
  return TinyEngine::make(model, options);
}

std::vector<float> next(Engine& e, SessionId session, std::span<const int32_t> tokens) {
  return TinyEngine::feed(e, session, tokens);
}

class Adopt : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    model_ = TinyEngine::load_typical(GetParam());
    ASSERT_NE(model_, nullptr);
    dense_ = engine(model_, profile("dense"));
    text_ = TinyEngine::tokens(*dense_, 1000, 7);
  }
  std::span<const int32_t> text(size_t begin, size_t n) const { return std::span(text_).subspan(begin, n); }

  std::shared_ptr<model::Model> model_;
  std::unique_ptr<Engine> dense_;
  Tokens text_;
};

TEST_P(Adopt, IntoAnotherDenseEngineChangesNoBit) {
  for (const int pages : {64, 256}) {
    Profile p = profile("dense");
    p.page_tokens = pages;
    const auto other = engine(model_, p, 100);
    const SessionId from = dense_->start().value();
    next(*dense_, from, text(0, 700));
    const auto adopted = other->adopt(*dense_, from);
    ASSERT_TRUE(adopted.ok()) << adopted.status().message();
    EXPECT_EQ(other->tokens(*adopted).size(), 700u);
    EXPECT_EQ(next(*other, *adopted, text(700, 1)), next(*dense_, from, text(700, 1)));
    EXPECT_EQ(next(*other, *adopted, text(701, 80)), next(*dense_, from, text(701, 80)));
    EXPECT_TRUE(other->check().ok()) << other->check().message();
    dense_->finish(from);
  }
}

TEST_P(Adopt, EqualsASessionThatComputedTheSameRows) {
  // In one step a session attends to its own rows in f16, as the dense one does: the rows are the same.
  for (const Profile& p : {profile("int8"), profile("k4v3"), TinyEngine::small_minima()}) {
    SCOPED_TRACE(p.name);
    const auto e = engine(model_, p);
    const SessionId fed = e->start().value(), from = dense_->start().value();
    next(*e, fed, text(0, 250));
    next(*dense_, from, text(0, 250));
    const auto adopted = e->adopt(*dense_, from);
    ASSERT_TRUE(adopted.ok()) << adopted.status().message();
    EXPECT_EQ(next(*e, *adopted, text(250, 1)), next(*e, fed, text(250, 1)));
    EXPECT_EQ(next(*e, *adopted, text(251, 70)), next(*e, fed, text(251, 70)));
    EXPECT_TRUE(e->check().ok()) << e->check().message();
    dense_->finish(from);
  }
}

TEST_P(Adopt, PagesGoThroughTheTiersAsIfFed) {
  EngineOptions options = TinyEngine::options(TinyEngine::small_minima());
  options.prefix_cache_bytes = 0;  // it would keep pages of the fed session that its windows have left
  const auto e = TinyEngine::make(model_, options), f = TinyEngine::make(model_, options);
  const SessionId from = dense_->start().value(), fed = f->start().value();
  next(*dense_, from, text(0, 900));
  next(*f, fed, text(0, 900));
  ASSERT_TRUE(e->adopt(*dense_, from).ok());
  const EngineStats a = e->stats(), b = f->stats();
  EXPECT_EQ(a.transitions, b.transitions);
  EXPECT_EQ(a.converted_tokens, b.converted_tokens);
  ASSERT_EQ(a.kv.tiers.size(), b.kv.tiers.size());
  for (size_t t = 0; t < a.kv.tiers.size(); ++t) {
    EXPECT_EQ(a.kv.tiers[t].tier, b.kv.tiers[t].tier);
    EXPECT_EQ(a.kv.tiers[t].tokens, b.kv.tiers[t].tokens);
    EXPECT_EQ(a.kv.tiers[t].bytes, b.kv.tiers[t].bytes);
  }
  EXPECT_EQ(a.kv.dense_bytes, b.kv.dense_bytes);
}

TEST_P(Adopt, LargerPagesThanTheDenseEnginesLoseNothingThatIsRead) {
  Profile p = profile("int8");
  p.page_tokens = 512;  // begins below what a dense page of 64 keeps of a window
  Profile small = profile("dense");
  small.page_tokens = 64;
  const auto from_engine = engine(model_, small), e = engine(model_, p);
  const SessionId from = from_engine->start().value();
  next(*from_engine, from, text(0, 900));
  const auto adopted = e->adopt(*from_engine, from);
  ASSERT_TRUE(adopted.ok()) << adopted.status().message();
  EXPECT_LT(TinyEngine::kl(next(*from_engine, from, text(900, 1)), next(*e, *adopted, text(900, 1))), 1e-2);
}

TEST_P(Adopt, RowsThatAWindowLetGoAreLostKeys) {
  const SessionId from = dense_->start().value();
  next(*dense_, from, text(0, 900));
  std::vector<float> k, v;
  for (const model::LayerInfo& l : model_->info().kv_layers) {
    ASSERT_TRUE(dense_->read_rows(from, l.layer, 0, 900, k, v).ok());
    const size_t row = size_t(l.kv_heads) * size_t(l.head_dim);
    ASSERT_EQ(k.size(), 900 * row);
    const bool gone = l.window > 0 && l.window < 300;
    EXPECT_EQ(std::isnan(k[100 * row]), gone) << "layer " << l.layer << ", window " << l.window;
    EXPECT_TRUE(std::isfinite(v[100 * row]));
    EXPECT_TRUE(std::isfinite(k[899 * row]));
  }
  EXPECT_EQ(dense_->read_rows(from, 0, 0, 901, k, v).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(dense_->read_rows(from, 99, 0, 1, k, v).code(), StatusCode::kInvalidArgument);
}

TEST_P(Adopt, LeavesNothingInThePrefixCache) {
  const auto e = engine(model_, TinyEngine::small_minima());
  const SessionId from = dense_->start().value();
  next(*dense_, from, text(0, 500));
  const SessionId adopted = e->adopt(*dense_, from).value();
  next(*e, adopted, text(500, 200));
  EXPECT_EQ(e->stats().prefix.entries, 0u);
  EXPECT_EQ(e->open(text(0, 700)).value().cached_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Architectures, Adopt, ::testing::Values("llama", "qwen2", "gemma3"),
                         [](const auto& info) { return info.param; });

TEST(AdoptRefuses, OtherModelsCodedSourcesAndWhatDoesNotFit) {
  const auto model = TinyEngine::load({.architecture = "llama"});
  const auto another = TinyEngine::load({.architecture = "qwen3"});
  const auto dense = engine(model, profile("dense")), coded = engine(model, profile("int8"));
  const auto other = engine(another, profile("int8"));
  const SessionId from = dense->start().value(), coded_session = coded->start().value();
  const Tokens text = TinyEngine::tokens(*dense, 300, 3);
  next(*dense, from, text);

  const Status wrong = other->adopt(*dense, from).status();
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.message().find(model->info().digest), std::string::npos) << wrong.message();
  EXPECT_NE(wrong.message().find(another->info().digest), std::string::npos) << wrong.message();
  EXPECT_EQ(dense->adopt(*coded, coded_session).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(coded->adopt(*dense, from + 99).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(dense->adopt(*dense, from).status().code(), StatusCode::kInvalidArgument);

  EngineOptions small = TinyEngine::options(profile("int8"));
  small.context_tokens = 128;
  const auto short_context = TinyEngine::make(model, small);
  const Status overflow = short_context->adopt(*dense, from).status();
  EXPECT_EQ(overflow.code(), StatusCode::kContextOverflow);
  EXPECT_NE(overflow.message().find("300"), std::string::npos) << overflow.message();
  EXPECT_TRUE(short_context->stats().kv.tiers.empty()) << "nothing of the refused session stays";
}

}  // namespace
}  // namespace varve
