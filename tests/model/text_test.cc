// Tokens and templates, on a real vocabulary and on small hostile ones.

#include "model/text.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>

#include "model/chat.h"
#include "model/sampler.h"
#include "support/models.h"
#include "support/temp_dir.h"
#include "support/texts.h"
#include "support/tiny_model.h"

namespace varve::model {
namespace {

std::shared_ptr<Model> vocabulary_of(const std::string& path) {
  auto model = Model::load(path, {.vocab_only = true});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}

std::shared_ptr<Model> tiny(const testing::TinySpec& spec) {
  const testing::TempDir directory;
  const std::string path = directory.file("tiny.gguf");
  EXPECT_TRUE(testing::write_tiny_model(path, spec).ok());
  return vocabulary_of(path);
}

TEST(Text, PiecesAndDetokenizedTextAreTheInput) {
  VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
  auto model = vocabulary_of(path);
  const std::string with_nul("a\0b", 3);
  for (const std::string& text : {testing::english_text(), testing::code_text(), testing::cjk_text(), std::string(),
                                  std::string("  two  spaces \n\n\tand tabs "), with_nul}) {
    auto tokens = tokenize(*model, text, false, false);
    ASSERT_TRUE(tokens.ok()) << tokens.status().message();
    std::string pieces;
    for (const int32_t t : *tokens) pieces += *piece(*model, t, true);
    EXPECT_EQ(pieces, text);
    EXPECT_EQ(*detokenize(*model, *tokens, true), text);
  }
}

TEST(Text, BytesThatAreNoUtf8) {
  VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
  auto model = vocabulary_of(path);
  for (const std::string& text :
       {std::string("\xff\xfe\x80"), std::string("ok \xe6\x97"), std::string("\xf0\x9f\x8c")}) {
    auto tokens = tokenize(*model, text, true, true);
    if (tokens.ok()) {
      EXPECT_TRUE(detokenize(*model, *tokens, true).ok());
    }
  }
}

TEST(Text, ControlTokens) {
  VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
  auto model = vocabulary_of(path);
  auto parsed = tokenize(*model, "<|im_start|>user", false, true),
       plain = tokenize(*model, "<|im_start|>user", false, false);
  ASSERT_TRUE(parsed.ok() && plain.ok());
  EXPECT_LT(parsed->size(), plain->size());
  EXPECT_EQ(*piece(*model, (*parsed)[0], true), "<|im_start|>");
  EXPECT_EQ(*piece(*model, (*parsed)[0], false), "");
  EXPECT_EQ(*detokenize(*model, *parsed, false), "user");
  EXPECT_EQ(*detokenize(*model, *plain, false), "<|im_start|>user");
  auto end = tokenize(*model, "<|im_end|>", false, true);
  ASSERT_EQ(end->size(), 1u);
  EXPECT_TRUE(is_end_of_generation(*model, (*end)[0]));
  EXPECT_FALSE(is_end_of_generation(*model, (*plain)[0]));
}

TEST(Text, TokensOutsideTheVocabulary) {
  auto model = tiny({});
  for (const int32_t t : {-1, model->info().vocabulary, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(piece(*model, t, true).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(detokenize(*model, std::span(&t, 1), true).status().code(), StatusCode::kInvalidArgument);
    EXPECT_FALSE(is_end_of_generation(*model, t));
  }
}

/// libllama asserts that a vocabulary which adds BOS has one.
TEST(Text, AnAssertionOfLibllamaIsAStatus) {
  auto model = tiny({.tokenizer = "gpt2", .edit_metadata = [](gguf_context* c) {
                       gguf_set_val_bool(c, "tokenizer.ggml.add_bos_token", true);
                       const char* letters[] = {"a", "b", "c", " "};
                       gguf_set_arr_str(c, "tokenizer.ggml.tokens", letters, 4);
                       gguf_remove_key(c, "tokenizer.ggml.token_type");
                     }});
  ASSERT_NE(model, nullptr);
  ASSERT_EQ(llama_vocab_bos(model->vocab()), LLAMA_TOKEN_NULL);
  auto tokens = tokenize(*model, "abc", true, false);
  ASSERT_FALSE(tokens.ok());
  EXPECT_NE(tokens.status().message().find("assertion"), std::string::npos) << tokens.status().message();
  EXPECT_TRUE(tokenize(*model, "abc", false, false).ok());
}

class Chat : public ::testing::Test {
 protected:
  std::shared_ptr<Model> model_ = tiny({.tokenizer = "gpt2"});
  const std::vector<ChatMessage> messages_{{.role = "system", .content = "Be brief."},
                                           {.role = "user", .content = "Hi <b>\"you\"</b>!"}};
};

TEST_F(Chat, FallsBackToChatMl) {
  auto chat = ChatTemplate::create(*model_, "");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_FALSE((*chat)->is_explicit());
  auto prompt = (*chat)->apply(messages_, {});
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  EXPECT_EQ(prompt->text,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <b>\"you\"</b>!<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_TRUE(prompt->grammar.text.empty());
  auto closed = (*chat)->apply(messages_, {.add_generation_prompt = false});
  ASSERT_TRUE(closed.ok());
  EXPECT_EQ(closed->text.find("assistant"), std::string::npos);
}

TEST_F(Chat, UsesTheModelsOwnTemplate) {
  VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
  auto model = vocabulary_of(path);
  auto chat = ChatTemplate::create(*model, "");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_TRUE((*chat)->is_explicit());
  auto prompt = (*chat)->apply({{.role = "user", .content = "Hello"}}, {});
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  EXPECT_NE(prompt->text.find("<|im_start|>user\nHello<|im_end|>"), std::string::npos) << prompt->text;
  EXPECT_TRUE(prompt->text.ends_with("<|im_start|>assistant\n")) << prompt->text;
}

/// The template writes BOS, the tokenizer adds it: the model must see one.
TEST_F(Chat, OneBeginningOfSequence) {
  auto model = tiny({});  // its SPM tokenizer adds BOS
  const int32_t bos = llama_vocab_bos(model->vocab());
  for (const char* source : {"{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}",
                             "{% for m in messages %}{{ m.content }}{% endfor %}"}) {
    auto chat = ChatTemplate::create(*model, source);
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    auto prompt = (*chat)->apply({{.role = "user", .content = "the sea"}}, {});
    ASSERT_TRUE(prompt.ok()) << prompt.status().message();
    auto tokens = chat_tokens(*model, *prompt);
    ASSERT_TRUE(tokens.ok()) << tokens.status().message();
    EXPECT_EQ(std::count(tokens->begin(), tokens->end(), bos), 1) << source;
    EXPECT_EQ(tokens->front(), bos) << source;
  }
}

TEST_F(Chat, OverrideAndVariables) {
  auto chat =
      ChatTemplate::create(*model_, "{{ motto }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_TRUE((*chat)->is_explicit());
  auto prompt = (*chat)->apply(messages_, {.variables = {{"motto", "\"On we go. \""}}});
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  EXPECT_EQ(prompt->text, "On we go. [system] Be brief.\n[user] Hi <b>\"you\"</b>!\n");
}

TEST_F(Chat, BrokenTemplatesAndRequests) {
  for (const char* source : {"{% for m in messages %}", "{{ messages[ }}", "{% nonsense %}", "{{ 'open"}) {
    auto chat = ChatTemplate::create(*model_, source);
    if (!chat.ok()) continue;
    EXPECT_FALSE((*chat)->apply(messages_, {}).ok()) << source;
  }
  auto raising = ChatTemplate::create(*model_, "{{ raise_exception('only one user message please') }}");
  if (raising.ok()) {
    auto prompt = (*raising)->apply(messages_, {});
    ASSERT_FALSE(prompt.ok());
    EXPECT_NE(prompt.status().message().find("only one user message"), std::string::npos) << prompt.status().message();
  }
  auto chat = ChatTemplate::create(*model_, "");
  ASSERT_TRUE(chat.ok());
  EXPECT_FALSE((*chat)->apply({}, {}).ok());
  EXPECT_FALSE((*chat)->apply(messages_, {.tool_choice = "sometimes"}).ok());
  EXPECT_FALSE((*chat)->apply(messages_, {.json_schema = "{not json"}).ok());
  EXPECT_FALSE((*chat)->apply(messages_, {.variables = {{"x", "{not json"}}}).ok());
  for (const char* json : {"", "[]", "{}", "[1]", "[{\"content\": \"no role\"}]", "[{\"role\": 1}]", "[{"}) {
    EXPECT_FALSE((*chat)->apply_json(json, "", {}).ok()) << json;
  }
  EXPECT_FALSE((*chat)->apply_json("[{\"role\":\"user\",\"content\":\"x\"}]", "[{\"type\":\"fish\"}]", {}).ok());
}

TEST_F(Chat, JsonMessagesAreTheSame) {
  auto chat = ChatTemplate::create(*model_, "");
  ASSERT_TRUE(chat.ok());
  auto a = (*chat)->apply({{.role = "user", .content = "one two"}}, {});
  auto b = (*chat)->apply_json(R"([{"role":"user","content":[{"type":"text","text":"one two"}]}])", "", {});
  ASSERT_TRUE(a.ok() && b.ok()) << b.status().message();
  EXPECT_EQ(a->text, b->text);
}

TEST_F(Chat, ToolCallsRoundTrip) {
  VARVE_MODEL_OR_SKIP(path, "qwen2.5-coder-0.5b");
  auto model = vocabulary_of(path);
  auto chat = ChatTemplate::create(*model, "");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  const std::string tools = R"([{"type":"function","function":{"name":"tide","description":"Height of the tide",
    "parameters":{"type":"object","properties":{"port":{"type":"string"}},"required":["port"]}}}])";
  auto prompt = (*chat)->apply_json(R"([{"role":"user","content":"How high is the tide in Bergen?"}])", tools, {});
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  EXPECT_NE(prompt->text.find("tide"), std::string::npos);
  EXPECT_FALSE(prompt->grammar.text.empty());
  EXPECT_TRUE(prompt->grammar.lazy);
  EXPECT_FALSE(prompt->grammar.trigger_patterns.empty() && prompt->grammar.trigger_tokens.empty());
  auto reply = (*chat)->parse(
      *prompt, "<tool_call>\n{\"name\": \"tide\", \"arguments\": {\"port\": \"Bergen\"}}\n</tool_call>", false);
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  ASSERT_EQ(reply->tool_calls.size(), 1u);
  EXPECT_EQ(reply->tool_calls[0].name, "tide");
  EXPECT_NE(reply->tool_calls[0].arguments.find("Bergen"), std::string::npos);
  auto plain = (*chat)->parse(*prompt, "I do not know.", false);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->content, "I do not know.");
  EXPECT_TRUE(plain->tool_calls.empty());
}

TEST_F(Chat, SchemaConstrainsTheReplyNotThePrompt) {
  VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
  auto model = vocabulary_of(path);
  auto chat = ChatTemplate::create(*model, "");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  auto prompt = (*chat)->apply({{.role = "user", .content = "A number, please."}},
                               {.json_schema = R"({"type":"object","properties":{"n":{"type":"integer"}}})"});
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  ASSERT_FALSE(prompt->grammar.text.empty());
  auto sampler = Sampler::create(model, {.grammar = prompt->grammar});
  ASSERT_TRUE(sampler.ok()) << sampler.status().message();
  std::vector<float> logits(static_cast<size_t>(model->info().vocabulary), -20.0f);
  const int32_t brace = (*tokenize(*model, "{", false, false))[0], letter = (*tokenize(*model, "z", false, false))[0];
  logits[static_cast<size_t>(letter)] = 9;
  logits[static_cast<size_t>(brace)] = 5;
  auto token = (*sampler)->sample(logits);
  ASSERT_TRUE(token.ok()) << token.status().message();
  EXPECT_EQ(*token, brace);
}

TEST(JsonSchema, BecomesAGrammar) {
  auto grammar = grammar_from_json_schema(R"({"type":"object","properties":{"n":{"type":"integer"}}})");
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  EXPECT_TRUE(check_grammar(nullptr, *grammar).ok());
  EXPECT_FALSE(grammar_from_json_schema("{").ok());
  EXPECT_FALSE(grammar_from_json_schema(R"({"$ref":"#/nowhere"})").ok());
}

}  // namespace
}  // namespace varve::model
