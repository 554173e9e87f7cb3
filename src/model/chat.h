#pragma once
// Chat messages to prompts and generated text back to messages, by the model's template (llama.cpp's common library).

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/grammar.h"
#include "model/model.h"
#include "varve/status.h"

namespace varve::model {

struct ToolCall {
  std::string id, name, arguments;  ///< arguments: JSON text
};

struct ChatMessage {
  std::string role = {};  ///< system, user, assistant, tool
  std::string content = {}, reasoning = {};
  std::vector<ToolCall> tool_calls = {};
  std::string tool_call_id = {}, tool_name = {};  ///< of role tool
};

struct Tool {
  std::string name, description, parameters;  ///< parameters: JSON schema text
};

struct ChatOptions {
  bool add_generation_prompt = true;
  bool enable_thinking = true;
  std::vector<Tool> tools = {};
  std::string tool_choice = "auto";  ///< auto, required, none
  bool parallel_tool_calls = false;
  std::string json_schema = {};                       ///< constrain the reply to this schema; not together with tools
  std::string grammar = {};                           ///< or to this GBNF
  std::map<std::string, std::string> variables = {};  ///< extra variables of the template; values are JSON text
  /// Seconds since the epoch, for templates that print the date.
  int64_t now_seconds = 0;
};

/// What a template makes of a conversation: the prompt, and how the reply must be sampled and read.
struct ChatPrompt {
  /// Without the BOS that the tokenizer adds itself; chat_tokens() makes tokens of it.
  std::string text;
  GrammarSpec grammar;
  std::vector<std::string> stops;  ///< strings that end the reply, besides end-of-generation tokens
  /// Opaque to callers; ChatTemplate::parse needs them.
  int format = 0;
  std::string parser, generation_prompt;
};

class ChatTemplate {
 public:
  /// source: a Jinja template, or empty for the model's own (ChatML when the file has none).
  static Result<std::unique_ptr<ChatTemplate>> create(const Model& model, const std::string& source);
  ~ChatTemplate();

  Result<ChatPrompt> apply(const std::vector<ChatMessage>& messages, const ChatOptions& options) const;
  /// Messages and tools as OpenAI's chat completions API writes them (JSON arrays; tools may be empty).
  Result<ChatPrompt> apply_json(const std::string& messages, const std::string& tools,
                                const ChatOptions& options) const;
  /// Splits a reply into content, reasoning and tool calls. partial: more text may follow.
  Result<ChatMessage> parse(const ChatPrompt& prompt, const std::string& reply, bool partial) const;

  std::string source() const;
  /// Whether the template came from the file or the caller, not from the ChatML fallback.
  bool is_explicit() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  ChatTemplate();
};

/// Tokens of a prompt: control tokens parsed, BOS added where the model asks for it.
Result<std::vector<int32_t>> chat_tokens(const Model& model, const ChatPrompt& prompt);

/// GBNF for a JSON schema.
Result<std::string> grammar_from_json_schema(const std::string& schema);

}  // namespace varve::model
