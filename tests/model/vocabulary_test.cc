#include "model/vocabulary.h"

#include <gguf.h>
#include <gtest/gtest.h>

#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace varve::model {
namespace {

std::shared_ptr<Model> load(const testing::TinySpec& spec) {
  const testing::TempDir directory;
  const std::string path = directory.file("tiny.gguf");
  EXPECT_TRUE(testing::write_tiny_model(path, spec).ok());
  auto model = Model::load(path, {.vocab_only = true});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}

/// Changes the text of one token.
void rename(gguf_context* metadata, size_t token, const std::string& text) {
  const int64_t key = gguf_find_key(metadata, "tokenizer.ggml.tokens");
  std::vector<std::string> texts;
  for (size_t i = 0; i < gguf_get_arr_n(metadata, key); ++i) texts.emplace_back(gguf_get_arr_str(metadata, key, i));
  texts[token] = text;
  std::vector<const char*> pointers;
  for (const std::string& t : texts) pointers.push_back(t.c_str());
  gguf_set_arr_str(metadata, "tokenizer.ggml.tokens", pointers.data(), pointers.size());
}

TEST(Vocabulary, EqualOnesAgreeWhateverTheModel) {
  const auto a = load({}), b = load({.layers = 1, .heads = 2, .kv_heads = 1, .seed = 9});
  EXPECT_TRUE(check_same_vocabulary(*a, *b).ok());
}

TEST(Vocabulary, AnotherNumberOfTokensIsNamed) {
  const auto a = load({}), b = load({.tokenizer = "gpt2"});
  const Status s = check_same_vocabulary(*a, *b);
  ASSERT_EQ(s.code(), StatusCode::kInvalidArgument);
  for (const auto& m : {a, b}) {
    EXPECT_NE(s.message().find(std::to_string(m->info().vocabulary)), std::string::npos) << s.message();
  }
}

TEST(Vocabulary, AnotherTextIsNamedWithItsToken) {
  const auto a = load({.tokenizer = "gpt2"});
  const auto b = load({.tokenizer = "gpt2", .edit_metadata = [](gguf_context* m) { rename(m, 70, "xyzzy"); }});
  const Status s = check_same_vocabulary(*a, *b);
  ASSERT_EQ(s.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(s.message().find("1 of " + std::to_string(a->info().vocabulary)), std::string::npos) << s.message();
  EXPECT_NE(s.message().find("70: \"xyzzy\""), std::string::npos) << s.message();
}

}  // namespace
}  // namespace varve::model
