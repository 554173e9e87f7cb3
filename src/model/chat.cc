#include "model/chat.h"

#include <chat.h>
#include <json-schema-to-grammar.h>

#include "model/ggml_guard.h"
#include "model/text.h"

namespace varve::model {
namespace {

common_chat_msg to_common(const ChatMessage& m) {
  common_chat_msg out;
  out.role = m.role;
  out.content = m.content;
  out.reasoning_content = m.reasoning;
  out.tool_name = m.tool_name;
  out.tool_call_id = m.tool_call_id;
  for (const ToolCall& c : m.tool_calls) out.tool_calls.push_back({c.name, c.arguments, c.id});
  return out;
}

ChatMessage from_common(const common_chat_msg& m) {
  ChatMessage out;
  out.role = m.role;
  out.content = m.content;
  out.reasoning = m.reasoning_content;
  out.tool_name = m.tool_name;
  out.tool_call_id = m.tool_call_id;
  for (const auto& c : m.tool_calls) out.tool_calls.push_back({c.id, c.name, c.arguments});
  return out;
}

common_chat_templates_inputs to_inputs(const ChatOptions& o) {
  common_chat_templates_inputs inputs;
  inputs.add_generation_prompt = o.add_generation_prompt;
  inputs.enable_thinking = o.enable_thinking;
  inputs.parallel_tool_calls = o.parallel_tool_calls;
  inputs.json_schema = o.json_schema;
  inputs.grammar = o.grammar;
  inputs.chat_template_kwargs = o.variables;
  inputs.tool_choice = common_chat_tool_choice_parse_oaicompat(o.tool_choice);
  inputs.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
  inputs.now = std::chrono::system_clock::time_point(std::chrono::seconds(o.now_seconds));
  for (const Tool& t : o.tools) inputs.tools.push_back({t.name, t.description, t.parameters});
  return inputs;
}

/// A literal as a regular expression.
std::string escaped(const std::string& word) {
  std::string out;
  for (const char c : word) {
    if (std::string_view(".^$|()*+?[]{}\\").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

GrammarSpec to_grammar(const common_chat_params& params) {
  GrammarSpec g;
  g.text = params.grammar;
  g.lazy = params.grammar_lazy;
  // Grammars made from tools or a schema describe the reply from the generation prompt on.
  g.prefill = params.generation_prompt;
  for (const common_grammar_trigger& t : params.grammar_triggers) {
    switch (t.type) {
      case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN:
        g.trigger_tokens.push_back(t.token);
        break;
      case COMMON_GRAMMAR_TRIGGER_TYPE_WORD:
        g.trigger_patterns.push_back(escaped(t.value));
        break;
      case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN:
        g.trigger_patterns.push_back(t.value);
        break;
      case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL: {
        std::string whole = t.value;
        if (whole.empty() || whole.front() != '^') whole.insert(whole.begin(), '^');
        if (whole.back() != '$' || whole.size() == 1) whole += '$';
        g.trigger_patterns.push_back(whole);
        break;
      }
    }
  }
  return g;
}

}  // namespace

struct ChatTemplate::Impl {
  common_chat_templates_ptr templates;

  ChatPrompt apply(common_chat_templates_inputs inputs) const {
    const common_chat_params params = common_chat_templates_apply(templates.get(), inputs);
    ChatPrompt prompt;
    prompt.text = params.prompt;
    prompt.stops = params.additional_stops;
    prompt.format = params.format;
    prompt.parser = params.parser;
    prompt.generation_prompt = params.generation_prompt;
    if (!params.grammar.empty()) {
      prompt.grammar = to_grammar(params);
      if (!inputs.grammar.empty()) prompt.grammar.prefill.clear();  // the caller's grammar describes the reply alone
    }
    return prompt;
  }
};

ChatTemplate::ChatTemplate() : impl_(std::make_unique<Impl>()) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create(const Model& model, const std::string& source) {
  std::unique_ptr<ChatTemplate> chat(new ChatTemplate);
  const Status s = guarded("chat template", [&] {
    chat->impl_->templates = common_chat_templates_init(model.handle(), source);
    return Status();
  });
  if (!s.ok()) return s;
  return chat;
}

Result<ChatPrompt> ChatTemplate::apply(const std::vector<ChatMessage>& messages, const ChatOptions& options) const {
  if (messages.empty()) return invalid_argument("chat template: there are no messages");
  ChatPrompt prompt;
  const Status s = guarded("chat template", [&] {
    common_chat_templates_inputs inputs = to_inputs(options);
    for (const ChatMessage& m : messages) inputs.messages.push_back(to_common(m));
    prompt = impl_->apply(std::move(inputs));
    return Status();
  });
  if (!s.ok()) return s;
  return prompt;
}

Result<ChatPrompt> ChatTemplate::apply_json(const std::string& messages, const std::string& tools,
                                            const ChatOptions& options) const {
  ChatPrompt prompt;
  const Status s = guarded("chat template", [&] {
    common_chat_templates_inputs inputs = to_inputs(options);
    inputs.messages = common_chat_msgs_parse_oaicompat(common_json::parse(messages));
    if (inputs.messages.empty()) return invalid_argument("chat template: there are no messages");
    if (!tools.empty()) inputs.tools = common_chat_tools_parse_oaicompat(common_json::parse(tools));
    prompt = impl_->apply(std::move(inputs));
    return Status();
  });
  if (!s.ok()) return s;
  return prompt;
}

Result<ChatMessage> ChatTemplate::parse(const ChatPrompt& prompt, const std::string& reply, bool partial) const {
  ChatMessage message;
  const Status s = guarded("chat reply", [&] {
    common_chat_parser_params params;
    params.format = static_cast<common_chat_format>(prompt.format);
    params.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
    params.generation_prompt = prompt.generation_prompt;
    if (!prompt.parser.empty()) params.parser.load(prompt.parser);
    message = from_common(common_chat_parse(reply, partial, params));
    return Status();
  });
  if (!s.ok()) return s;
  return message;
}

std::string ChatTemplate::source() const { return common_chat_templates_source(impl_->templates.get()); }
bool ChatTemplate::is_explicit() const { return common_chat_templates_was_explicit(impl_->templates.get()); }

Result<std::vector<int32_t>> chat_tokens(const Model& model, const ChatPrompt& prompt) {
  return tokenize(model, prompt.text, /*add_special=*/true, /*parse_special=*/true);
}

Result<std::string> grammar_from_json_schema(const std::string& schema) {
  std::string grammar;
  const Status s = guarded("JSON schema", [&] {
    grammar = json_schema_to_grammar(common_json::parse(schema));
    return Status();
  });
  if (!s.ok()) return s;
  return grammar;
}

}  // namespace varve::model
