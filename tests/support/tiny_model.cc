#include "support/tiny_model.h"

#include <llama.h>

#include <cmath>
#include <memory>
#include <random>

namespace varve::testing {
namespace {

struct FreeGguf {
  void operator()(gguf_context* c) const { gguf_free(c); }
};
struct FreeContext {
  void operator()(ggml_context* c) const { ggml_free(c); }
};

void set_strings(gguf_context* c, const char* key, const std::vector<std::string>& values) {
  std::vector<const char*> pointers;
  for (const std::string& v : values) pointers.push_back(v.c_str());
  gguf_set_arr_str(c, key, pointers.data(), pointers.size());
}

std::string utf8(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

/// GPT-2's printable stand-in for a byte.
std::vector<std::string> byte_level_alphabet() {
  std::vector<std::string> alphabet;
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174);
    alphabet.push_back(utf8(printable ? b : next++));
  }
  return alphabet;
}

void set_spm_tokenizer(gguf_context* c) {
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types{LLAMA_TOKEN_TYPE_UNKNOWN, LLAMA_TOKEN_TYPE_CONTROL, LLAMA_TOKEN_TYPE_CONTROL};
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", b);
    tokens.emplace_back(name);
    types.push_back(LLAMA_TOKEN_TYPE_BYTE);
  }
  tokens.emplace_back("\xe2\x96\x81");  // SentencePiece's visible space
  for (char letter = 'a'; letter <= 'z'; ++letter) tokens.emplace_back(1, letter);
  for (const char* word : {"th", "the", "an", "in", "er", "on", "sea", "\xe2\x96\x81the", "\xe2\x96\x81sea"}) {
    tokens.emplace_back(word);
  }
  types.resize(tokens.size(), LLAMA_TOKEN_TYPE_NORMAL);
  std::vector<float> scores;
  for (size_t i = 0; i < tokens.size(); ++i) scores.push_back(-static_cast<float>(i));
  gguf_set_val_str(c, "tokenizer.ggml.model", "llama");
  set_strings(c, "tokenizer.ggml.tokens", tokens);
  gguf_set_arr_data(c, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
  gguf_set_arr_data(c, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  gguf_set_val_u32(c, "tokenizer.ggml.bos_token_id", 1);
  gguf_set_val_u32(c, "tokenizer.ggml.eos_token_id", 2);
}

void set_bpe_tokenizer(gguf_context* c) {
  std::vector<std::string> tokens = byte_level_alphabet();
  for (const char* word : {"th", "the", "an", "in", "er", "\xc4\xa0t", "<|endoftext|>"}) tokens.emplace_back(word);
  std::vector<int32_t> types(tokens.size(), LLAMA_TOKEN_TYPE_NORMAL);
  types.back() = LLAMA_TOKEN_TYPE_CONTROL;
  gguf_set_val_str(c, "tokenizer.ggml.model", "gpt2");
  gguf_set_val_str(c, "tokenizer.ggml.pre", "gpt-2");
  set_strings(c, "tokenizer.ggml.tokens", tokens);
  set_strings(c, "tokenizer.ggml.merges", {"t h", "th e", "a n", "i n", "e r", "\xc4\xa0 t"});
  gguf_set_arr_data(c, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  gguf_set_val_u32(c, "tokenizer.ggml.bos_token_id", static_cast<uint32_t>(tokens.size() - 1));
  gguf_set_val_u32(c, "tokenizer.ggml.eos_token_id", static_cast<uint32_t>(tokens.size() - 1));
}

void set_hyper_parameters(gguf_context* c, const TinySpec& s) {
  const auto u32 = [&](const char* name, int value) {
    gguf_set_val_u32(c, metadata_key(s, name).c_str(), static_cast<uint32_t>(value));
  };
  gguf_set_val_str(c, "general.architecture", s.architecture.c_str());
  gguf_set_val_str(c, "general.name", "tiny");
  u32("block_count", s.layers);
  u32("context_length", 4096);
  u32("embedding_length", s.embedding);
  u32("feed_forward_length", s.feed_forward);
  u32("attention.head_count", s.heads);
  u32("attention.head_count_kv", s.kv_heads);
  u32("attention.key_length", s.head_dim);
  u32("attention.value_length", s.head_dim);
  gguf_set_val_f32(c, metadata_key(s, "attention.layer_norm_rms_epsilon").c_str(), 1e-5f);
  gguf_set_val_f32(c, metadata_key(s, "rope.freq_base").c_str(), 10000.0f);
  if (s.architecture == "gemma3") u32("attention.sliding_window", 24);
}

std::vector<TinyTensor> tensors(const TinySpec& s, int64_t vocabulary) {
  std::vector<TinyTensor> all;
  const int64_t q = int64_t{s.heads} * s.head_dim, kv = int64_t{s.kv_heads} * s.head_dim;
  const auto matrix = [&](std::string name, int64_t in, int64_t out) {
    all.push_back({std::move(name), {in, out}, s.matrix_type});
  };
  const auto vector = [&](std::string name, int64_t n) { all.push_back({std::move(name), {n}, GGML_TYPE_F32}); };
  matrix("token_embd.weight", s.embedding, vocabulary);
  vector("output_norm.weight", s.embedding);
  if (!s.tied) matrix("output.weight", s.embedding, vocabulary);
  if (s.rope_freqs) vector("rope_freqs.weight", s.head_dim / 2);
  for (int l = 0; l < s.layers; ++l) {
    const std::string b = "blk." + std::to_string(l) + ".";
    vector(b + "attn_norm.weight", s.embedding);
    matrix(b + "attn_q.weight", s.embedding, q);
    matrix(b + "attn_k.weight", s.embedding, kv);
    matrix(b + "attn_v.weight", s.embedding, kv);
    if (s.qkv_bias) {
      vector(b + "attn_q.bias", q);
      vector(b + "attn_k.bias", kv);
      vector(b + "attn_v.bias", kv);
    }
    matrix(b + "attn_output.weight", q, s.embedding);
    vector(b + "ffn_norm.weight", s.embedding);
    matrix(b + "ffn_gate.weight", s.embedding, s.feed_forward);
    matrix(b + "ffn_up.weight", s.embedding, s.feed_forward);
    matrix(b + "ffn_down.weight", s.feed_forward, s.embedding);
    if (s.architecture == "qwen3" || s.architecture == "gemma3") {
      vector(b + "attn_q_norm.weight", s.head_dim);
      vector(b + "attn_k_norm.weight", s.head_dim);
    }
    if (s.architecture == "gemma3") {
      vector(b + "post_attention_norm.weight", s.embedding);
      vector(b + "post_ffw_norm.weight", s.embedding);
    }
  }
  return all;
}

/// Matrices keep the size of what they multiply; norms lie around 1; frequency factors between 1 and 4.
void fill(ggml_tensor* t, std::mt19937& random) {
  const std::string name = t->name;
  const bool norm = name.find("norm") != std::string::npos, factors = name.rfind("rope_freqs", 0) == 0;
  std::normal_distribution<float> normal(norm ? 1.0f : 0.0f,
                                         norm ? 0.1f : 1.5f / std::sqrt(static_cast<float>(t->ne[0])));
  std::uniform_real_distribution<float> uniform(1.0f, 4.0f);
  std::vector<float> values(static_cast<size_t>(ggml_nelements(t)));
  for (float& v : values) v = factors ? uniform(random) : normal(random);
  if (t->type == GGML_TYPE_I32) {
    std::fill_n(static_cast<int32_t*>(t->data), values.size(), 1);
  } else {
    const int64_t rows = ggml_nelements(t) / t->ne[0];
    ggml_quantize_chunk(t->type, values.data(), t->data, 0, rows, t->ne[0], nullptr);
  }
}

}  // namespace

std::string metadata_key(const TinySpec& spec, const std::string& name) { return spec.architecture + "." + name; }

Status write_tiny_model(const std::string& path, const TinySpec& spec) {
  std::vector<std::unique_ptr<gguf_context, FreeGguf>> files;
  for (int i = 0; i < spec.files; ++i) files.emplace_back(gguf_init_empty());
  gguf_context* first = files[0].get();
  set_hyper_parameters(first, spec);
  if (spec.tokenizer == "gpt2") {
    set_bpe_tokenizer(first);
  } else {
    set_spm_tokenizer(first);
  }
  const int64_t tokens_id = gguf_find_key(first, "tokenizer.ggml.tokens");
  std::vector<TinyTensor> wanted = tensors(spec, static_cast<int64_t>(gguf_get_arr_n(first, tokens_id)));
  if (spec.edit_tensor) std::erase_if(wanted, [&](TinyTensor& t) { return !spec.edit_tensor(t); });
  if (spec.files > 1) {
    for (int i = 0; i < spec.files; ++i) {
      gguf_set_val_u16(files[static_cast<size_t>(i)].get(), "split.no", static_cast<uint16_t>(i));
      gguf_set_val_u16(files[static_cast<size_t>(i)].get(), "split.count", static_cast<uint16_t>(spec.files));
      gguf_set_val_i32(files[static_cast<size_t>(i)].get(), "split.tensors.count", static_cast<int32_t>(wanted.size()));
    }
  }
  if (spec.edit_metadata) spec.edit_metadata(first);

  size_t bytes = 0;
  for (const TinyTensor& t : wanted) {
    size_t n = ggml_type_size(t.type);
    for (const int64_t d : t.shape) n *= static_cast<size_t>(d);
    bytes += n + ggml_tensor_overhead() + 64;
  }
  const std::unique_ptr<ggml_context, FreeContext> memory(ggml_init({bytes, nullptr, false}));
  std::mt19937 random(spec.seed);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const TinyTensor& t = wanted[i];
    ggml_tensor* tensor = ggml_new_tensor(memory.get(), t.type, static_cast<int>(t.shape.size()), t.shape.data());
    ggml_set_name(tensor, t.name.c_str());
    fill(tensor, random);
    gguf_add_tensor(files[i * files.size() / wanted.size()].get(), tensor);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    std::string name = path;
    if (spec.files > 1) {
      const size_t suffix = path.rfind("-00001-of-");
      if (suffix == std::string::npos) return invalid_argument(path + " does not name the first file of a split");
      name.resize(suffix);
      std::string full(name.size() + 32, '\0');
      full.resize(static_cast<size_t>(
          llama_split_path(full.data(), full.size(), name.c_str(), static_cast<int>(i), spec.files)));
      name = full;
    }
    if (!gguf_write_to_file(files[i].get(), name.c_str(), /*only_meta=*/false)) return io_error("cannot write " + name);
  }
  return Status();
}

}  // namespace varve::testing
