// Files that are missing, broken or hostile: always a Status with the reason, never a crash, in bounded memory.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "model/executor.h"
#include "model/gguf_file.h"
#include "model/model.h"
#include "model/text.h"
#include "support/models.h"
#include "support/step_runner.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace varve::model {
namespace {

using testing::metadata_key;
using testing::TempDir;
using testing::TinySpec;
using testing::TinyTensor;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

size_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

/// Loads a file that may or may not be valid; a model that loads must also run. Returns whether it loaded.
bool survives(const std::string& path) {
  auto model = Model::load(path, {});
  if (!model.ok()) {
    EXPECT_FALSE(model.status().message().empty());
    return false;
  }
  auto tokens = tokenize(**model, "the sea <|endoftext|> \xf0\x9f\x8c\x8a", true, true);
  if (tokens.ok()) (void)detokenize(**model, *tokens, true);
  auto executor = Executor::create(*model, {.threads = 1, .max_rows = 4});
  if (!executor.ok()) return true;
  testing::StepRunner runner(**executor, (*model)->info(), 8);
  const int32_t prompt[] = {0, (*model)->info().vocabulary - 1, 1};
  EXPECT_TRUE(runner.feed(prompt).ok());
  return true;
}

Status load_status(const std::string& path) {
  auto model = Model::load(path, {});
  return model.ok() ? Status() : model.status();
}

#define EXPECT_REFUSED(path, expected_code, text)                        \
  do {                                                                   \
    const Status s = load_status(path);                                  \
    EXPECT_EQ(s.code(), StatusCode::expected_code) << s.message();       \
    EXPECT_NE(s.message().find(text), std::string::npos) << s.message(); \
  } while (false)

class BadFile : public ::testing::Test {
 protected:
  void write(const TinySpec& spec) {
    const Status s = testing::write_tiny_model(path_, spec);
    ASSERT_TRUE(s.ok()) << s.message();
  }
  /// Metadata key set to a u32 before writing.
  TinySpec with_u32(const std::string& key, uint32_t value, TinySpec spec = {}) {
    spec.edit_metadata = [=](gguf_context* c) { gguf_set_val_u32(c, metadata_key(spec, key).c_str(), value); };
    return spec;
  }
  TinySpec with_f32(const std::string& key, float value, TinySpec spec = {}) {
    spec.edit_metadata = [=](gguf_context* c) { gguf_set_val_f32(c, metadata_key(spec, key).c_str(), value); };
    return spec;
  }

  TempDir directory_;
  std::string path_ = directory_.file("model.gguf");
};

TEST_F(BadFile, TheUnbrokenOnesLoad) {
  write({});
  EXPECT_TRUE(survives(path_));
  write({.architecture = "qwen3", .tokenizer = "gpt2"});
  EXPECT_TRUE(survives(path_));
}

TEST_F(BadFile, Missing) { EXPECT_REFUSED(directory_.file("nothing.gguf"), kNotFound, "nothing.gguf"); }

TEST_F(BadFile, Directory) { EXPECT_REFUSED(directory_.file("."), kInvalidArgument, "not a regular file"); }

TEST_F(BadFile, Empty) {
  write_file(path_, "");
  EXPECT_REFUSED(path_, kCorrupt, "0 bytes");
}

TEST_F(BadFile, NotGguf) {
  std::mt19937 random(1);
  std::string noise(100000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  write_file(path_, noise);
  EXPECT_REFUSED(path_, kCorrupt, "not a GGUF file");
  std::memcpy(noise.data(), "GGUF", 4);
  write_file(path_, noise);
  EXPECT_EQ(load_status(path_).code(), StatusCode::kCorrupt);
}

TEST_F(BadFile, TruncatedAnywhere) {
  write({});
  const std::string whole = read_file(path_);
  auto file = GgufFile::open(path_);
  ASSERT_TRUE(file.ok());
  const size_t header = file->data_offset();
  std::vector<size_t> sizes;
  for (size_t n = 1; n < header; n += 97) sizes.push_back(n);
  for (size_t n = header; n < whole.size(); n += 40009) sizes.push_back(n);
  sizes.push_back(whole.size() - 1);
  for (const size_t n : sizes) {
    write_file(path_, whole.substr(0, n));
    const Status s = load_status(path_);
    EXPECT_EQ(s.code(), StatusCode::kCorrupt) << n << " of " << whole.size() << " bytes: " << s.message();
  }
  write_file(path_, whole.substr(0, whole.size() - 1));
  EXPECT_REFUSED(path_, kCorrupt, "the file has " + std::to_string(whole.size() - 1));
}

TEST_F(BadFile, UnsupportedArchitecture) {
  TinySpec spec;
  spec.edit_metadata = [](gguf_context* c) { gguf_set_val_str(c, "general.architecture", "mamba"); };
  write(spec);
  EXPECT_REFUSED(path_, kUnsupported, "'mamba' is not supported (supported: llama, qwen2, qwen3, gemma3)");
  spec.edit_metadata = [](gguf_context* c) { gguf_set_val_u32(c, "general.architecture", 7); };
  write(spec);
  EXPECT_REFUSED(path_, kCorrupt, "general.architecture has type u32");
}

TEST_F(BadFile, MixtureOfExperts) {
  write(with_u32("expert_count", 8));
  EXPECT_REFUSED(path_, kUnsupported, "mixture-of-experts");
}

TEST_F(BadFile, HyperParametersOutOfBounds) {
  const struct {
    const char* key;
    uint32_t value;
    StatusCode code;
  } cases[] = {
      {"block_count", 0, StatusCode::kCorrupt},
      {"block_count", 4000000000u, StatusCode::kCorrupt},
      {"block_count", 3, StatusCode::kCorrupt},  // the file has two
      {"context_length", 0, StatusCode::kCorrupt},
      {"embedding_length", 0, StatusCode::kCorrupt},
      {"embedding_length", 4294967295u, StatusCode::kCorrupt},
      {"feed_forward_length", 0, StatusCode::kCorrupt},
      {"attention.head_count", 0, StatusCode::kCorrupt},
      {"attention.head_count", 3, StatusCode::kCorrupt},
      {"attention.head_count_kv", 0, StatusCode::kCorrupt},
      {"attention.head_count_kv", 3, StatusCode::kCorrupt},
      {"attention.key_length", 0, StatusCode::kCorrupt},
      {"attention.key_length", 100, StatusCode::kUnsupported},
      {"attention.value_length", 128, StatusCode::kUnsupported},
      {"rope.dimension_count", 63, StatusCode::kCorrupt},
      {"rope.dimension_count", 128, StatusCode::kCorrupt},
      {"rope.dimension_count", 32, StatusCode::kUnsupported},
      {"nextn_predict_layers", 1, StatusCode::kUnsupported},
      {"expert_used_count", 2, StatusCode::kCorrupt},
      {"expert_group_count", 1, StatusCode::kCorrupt},
  };
  for (const auto& c : cases) {
    write(with_u32(c.key, c.value));
    const Status s = load_status(path_);
    EXPECT_EQ(s.code(), c.code) << c.key << " = " << c.value << ": " << s.message();
  }
  const struct {
    const char* key;
    float value;
  } reals[] = {
      {"attention.layer_norm_rms_epsilon", 0.0f},
      {"attention.layer_norm_rms_epsilon", NAN},
      {"rope.freq_base", 0.0f},
      {"rope.freq_base", INFINITY},
      {"rope.scaling.factor", -1.0f},
      {"rope.scaling.attn_factor", 0.0f},
  };
  for (const auto& c : reals) {
    write(with_f32(c.key, c.value));
    EXPECT_EQ(load_status(path_).code(), StatusCode::kCorrupt) << c.key << " = " << c.value;
  }
}

TEST_F(BadFile, MetadataMissingOrOfAnotherType) {
  for (const char* key : {"block_count", "context_length", "embedding_length", "feed_forward_length",
                          "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    TinySpec spec;
    spec.edit_metadata = [&](gguf_context* c) { gguf_remove_key(c, metadata_key(spec, key).c_str()); };
    write(spec);
    EXPECT_REFUSED(path_, kCorrupt, std::string(key) + " is missing");
    spec.edit_metadata = [&](gguf_context* c) { gguf_set_val_str(c, metadata_key(spec, key).c_str(), "many"); };
    write(spec);
    EXPECT_REFUSED(path_, kCorrupt, std::string(key) + " has type str");
  }
  TinySpec scaling;
  scaling.edit_metadata = [&](gguf_context* c) {
    gguf_set_val_str(c, metadata_key(scaling, "rope.scaling.type").c_str(), "spiral");
  };
  write(scaling);
  EXPECT_REFUSED(path_, kUnsupported, "'spiral'");
}

TEST_F(BadFile, PerLayerCounts) {
  TinySpec spec;
  const auto set = [&](std::vector<uint32_t> counts) {
    spec.edit_metadata = [=](gguf_context* c) {
      gguf_set_arr_data(c, metadata_key(spec, "attention.head_count_kv").c_str(), GGUF_TYPE_UINT32, counts.data(),
                        counts.size());
    };
    write(spec);
  };
  set({2, 2});
  EXPECT_TRUE(survives(path_));
  set({2, 4});
  EXPECT_REFUSED(path_, kUnsupported, "differs from layer to layer");
  set({2});
  EXPECT_REFUSED(path_, kCorrupt, "array of 1");
}

TEST_F(BadFile, SlidingWindowPattern) {
  TinySpec spec{.architecture = "gemma3"};
  const auto set = [&](gguf_type type, const void* data, size_t n) {
    spec.edit_metadata = [=](gguf_context* c) {
      gguf_set_arr_data(c, metadata_key(spec, "attention.sliding_window_pattern").c_str(), type, data, n);
    };
    write(spec);
  };
  const bool flags[] = {true, false, true};
  set(GGUF_TYPE_BOOL, flags, 2);
  EXPECT_TRUE(survives(path_));
  set(GGUF_TYPE_BOOL, flags, 3);
  EXPECT_REFUSED(path_, kCorrupt, "expected 2 flags");
  const float reals[] = {1, 0};
  set(GGUF_TYPE_FLOAT32, reals, 2);
  EXPECT_REFUSED(path_, kCorrupt, "expected 2 flags");
}

TEST_F(BadFile, EachTensorMissing) {
  std::vector<std::string> names;
  write({.edit_tensor = [&](TinyTensor& t) {
    names.push_back(t.name);
    return true;
  }});
  ASSERT_EQ(names.size(), 21u);
  for (const std::string& missing : names) {
    write({.edit_tensor = [&](TinyTensor& t) { return t.name != missing; }});
    if (missing == "output.weight") {
      EXPECT_TRUE(survives(path_)) << "without it, the embedding is the output";
    } else {
      EXPECT_REFUSED(path_, kCorrupt, "tensor " + missing);
    }
  }
}

TEST_F(BadFile, EachTensorOfWrongShapeOrType) {
  std::vector<TinyTensor> all;
  write({.edit_tensor = [&](TinyTensor& t) {
    all.push_back(t);
    return true;
  }});
  const auto with = [&](const TinyTensor& changed) {
    write({.edit_tensor = [&](TinyTensor& t) {
      if (t.name == changed.name) t = changed;
      return true;
    }});
  };
  for (const TinyTensor& original : all) {
    TinyTensor t = original;
    t.shape.back() += 32;
    with(t);
    EXPECT_REFUSED(path_, kCorrupt, "tensor " + t.name + " has shape [");
    t = original;
    t.shape.resize(3, 1);
    t.shape[2] = 2;
    with(t);
    EXPECT_REFUSED(path_, kCorrupt, "tensor " + t.name + " has shape [");
    t = original;
    t.type = GGML_TYPE_I32;
    with(t);
    EXPECT_REFUSED(path_, kUnsupported, "tensor " + t.name);
    if (original.shape.size() == 1) {
      t.type = GGML_TYPE_F16;
      with(t);
      EXPECT_REFUSED(path_, kUnsupported, "expected f32");
    }
  }
}

TEST_F(BadFile, UnknownTensor) {
  write({.edit_tensor = [](TinyTensor& t) {
    if (t.name == "output.weight") t.name = "output.scale";
    return true;
  }});
  EXPECT_REFUSED(path_, kUnsupported, "1 tensors are unknown for architecture llama, e.g. output.scale");
}

TEST_F(BadFile, Tokenizer) {
  const auto expect = [&](StatusCode code, const std::string& text, std::function<void(gguf_context*)> edit,
                          const char* tokenizer = "llama") {
    write({.tokenizer = tokenizer, .edit_metadata = std::move(edit)});
    const Status s = load_status(path_);
    EXPECT_EQ(s.code(), code) << s.message();
    EXPECT_NE(s.message().find(text), std::string::npos) << s.message();
  };
  using C = gguf_context*;
  const float scores[] = {1, 2, 3};
  const char* words[] = {"a", "b", "a"};
  expect(StatusCode::kCorrupt, "tokenizer.ggml.model is missing",
         [](C c) { gguf_remove_key(c, "tokenizer.ggml.model"); });
  expect(StatusCode::kUnsupported, "'bert'", [](C c) { gguf_set_val_str(c, "tokenizer.ggml.model", "bert"); });
  expect(StatusCode::kCorrupt, "tokenizer.ggml.tokens", [](C c) { gguf_remove_key(c, "tokenizer.ggml.tokens"); });
  expect(StatusCode::kCorrupt, "tokenizer.ggml.tokens", [](C c) { gguf_set_val_u32(c, "tokenizer.ggml.tokens", 300); });
  expect(StatusCode::kCorrupt, "has 3 entries",
         [&](C c) { gguf_set_arr_data(c, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores, 3); });
  expect(StatusCode::kCorrupt, "array of f32",
         [&](C c) { gguf_set_arr_data(c, "tokenizer.ggml.token_type", GGUF_TYPE_FLOAT32, scores, 3); });
  expect(StatusCode::kCorrupt, "tokens 0 and 2 have the same text", [&](C c) {
    gguf_set_arr_str(c, "tokenizer.ggml.tokens", words, 3);
    gguf_remove_key(c, "tokenizer.ggml.scores");
    gguf_remove_key(c, "tokenizer.ggml.token_type");
  });
  expect(
      StatusCode::kCorrupt, "tokenizer.ggml.merges", [](C c) { gguf_remove_key(c, "tokenizer.ggml.merges"); }, "gpt2");
  // Found by libllama, reported by us.
  expect(
      StatusCode::kCorrupt, "pre-tokenizer", [](C c) { gguf_set_val_str(c, "tokenizer.ggml.pre", "mystery"); }, "gpt2");
  expect(StatusCode::kCorrupt, "libllama refuses",
         [](C c) { gguf_set_val_str(c, "tokenizer.ggml.bos_token_id", "one"); });
}

/// Replaces 8 bytes at `offset` of the file.
void poke(std::string& bytes, size_t offset, uint64_t value) { std::memcpy(&bytes[offset], &value, sizeof(value)); }

TEST_F(BadFile, CountsAndSizesThatClaimTooMuch) {
  write({});
  const std::string whole = read_file(path_);
  const size_t before = peak_rss_bytes();
  const size_t tokens = whole.find("tokenizer.ggml.tokens") + std::strlen("tokenizer.ggml.tokens") + 8;
  const size_t name = whole.find("general.name") - 8;
  const size_t tensor = whole.find("blk.1.ffn_down.weight") + std::strlen("blk.1.ffn_down.weight");
  const struct {
    const char* what;
    size_t offset;
  } places[] = {
      {"tensor count", 8},          {"metadata count", 16},
      {"key length", name},         {"value length", name + 8 + 12 + 4},
      {"token count", tokens},      {"tensor columns", tensor + 4},
      {"tensor rows", tensor + 12}, {"tensor offset", tensor + 24},
  };
  for (const auto& place : places) {
    for (const uint64_t value : {uint64_t{1} << 20, uint64_t{1} << 31, uint64_t{1} << 40, uint64_t{1} << 62,
                                 ~uint64_t{0}, (~uint64_t{0}) / 8, (~uint64_t{0}) / 2}) {
      std::string broken = whole;
      poke(broken, place.offset, value);
      write_file(path_, broken);
      const Status s = load_status(path_);
      EXPECT_EQ(s.code(), StatusCode::kCorrupt) << place.what << " = " << value << ": " << s.message();
    }
  }
  EXPECT_LT(peak_rss_bytes() - before, size_t{256} << 20);
}

TEST_F(BadFile, TensorDataBeyondTheFile) {
  write({});
  std::string whole = read_file(path_);
  // The last tensor's rows: its data would end past the file, and nothing else in the table contradicts it.
  const std::string last = "blk.1.ffn_down.weight";
  const size_t rows = whole.find(last) + last.size() + 12;
  poke(whole, rows, 512);
  write_file(path_, whole);
  EXPECT_REFUSED(path_, kCorrupt, "is truncated: tensor " + last);
}

TEST_F(BadFile, AlignmentThatCannotBeMapped) {
  for (const uint32_t alignment : {1u, 8u, 16u}) {
    write({.edit_metadata = [=](gguf_context* c) { gguf_set_val_u32(c, "general.alignment", alignment); }});
    EXPECT_REFUSED(path_, kUnsupported, "general.alignment is " + std::to_string(alignment));
  }
  write({.edit_metadata = [](gguf_context* c) { gguf_set_val_u32(c, "general.alignment", 64); }});
  EXPECT_TRUE(survives(path_));
}

/// Flips one bit of every `stride`-th byte of the header, metadata and tensor table, in place.
int flip_bits(const std::string& path, size_t stride, uint32_t seed, int most) {
  auto file = GgufFile::open(path);
  if (!file.ok()) return -1;
  std::mt19937 random(seed);
  const size_t end = file->data_offset();
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  int loaded = 0, tried = 0;
  for (size_t at = random() % stride; at < end && tried < most; at += 1 + random() % (2 * stride - 1), ++tried) {
    char original = 0;
    EXPECT_EQ(pread(fd, &original, 1, static_cast<off_t>(at)), 1);
    const char flipped = static_cast<char>(original ^ (1 << (random() % 8)));
    EXPECT_EQ(pwrite(fd, &flipped, 1, static_cast<off_t>(at)), 1);
    SCOPED_TRACE("byte " + std::to_string(at));
    loaded += survives(path);
    EXPECT_EQ(pwrite(fd, &original, 1, static_cast<off_t>(at)), 1);
  }
  close(fd);
  return loaded;
}

TEST_F(BadFile, FlippedBits) {
  const size_t before = peak_rss_bytes();
  for (const char* tokenizer : {"llama", "gpt2"}) {
    write({.architecture = std::strcmp(tokenizer, "llama") == 0 ? "gemma3" : "qwen2", .tokenizer = tokenizer});
    const int loaded = flip_bits(path_, 16, 7, 400);
    EXPECT_GT(loaded, 0) << "a flip in a token's text is harmless";
    EXPECT_TRUE(survives(path_)) << "every flip was undone";
  }
  EXPECT_LT(peak_rss_bytes() - before, size_t{512} << 20);
}

TEST_F(BadFile, FlippedBitsOfARealModel) {
  VARVE_MODEL_OR_SKIP(real, "smollm2-135m");
  std::filesystem::copy_file(real, path_);
  auto file = GgufFile::open(path_);
  ASSERT_TRUE(file.ok());
  flip_bits(path_, file->data_offset() / 24, 11, 24);  // anywhere: mostly the vocabulary
  flip_bits(path_, 40, 12, 24);                        // the scalars at the start
}

TEST_F(BadFile, Cancelled) {
  write({});
  auto model = Model::load(path_, {.progress = [](float) { return false; }});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kCancelled);
  auto thrown = Model::load(path_, {.progress = [](float) -> bool { throw 1; }});
  ASSERT_FALSE(thrown.ok());
  EXPECT_EQ(thrown.status().code(), StatusCode::kCancelled);
}

TEST_F(BadFile, VocabularyOnly) {
  write({.edit_tensor = [](TinyTensor& t) { return t.name == "output_norm.weight"; }});
  auto model = Model::load(path_, {.vocab_only = true});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_TRUE(tokenize(**model, "the sea", true, false).ok());
  EXPECT_EQ(Executor::create(*model, {}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(BadFile, SplitModels) {
  const std::string first = directory_.file("split-00001-of-00003.gguf");
  const std::string second = directory_.file("split-00002-of-00003.gguf");
  ASSERT_TRUE(testing::write_tiny_model(first, {.files = 3}).ok());
  write({});
  EXPECT_TRUE(survives(first));
  auto whole = Model::load(path_, {}), parts = Model::load(first, {});
  ASSERT_TRUE(whole.ok() && parts.ok());
  EXPECT_EQ((*whole)->info().parameters, (*parts)->info().parameters);
  EXPECT_NE((*whole)->info().digest, (*parts)->info().digest);
  EXPECT_REFUSED(second, kInvalidArgument, "part 2 of 3");

  const std::string renamed = directory_.file("renamed.gguf");
  std::filesystem::copy_file(first, renamed);
  EXPECT_REFUSED(renamed, kInvalidArgument, "siblings");
  const std::string bytes = read_file(second);
  write_file(second, bytes.substr(0, bytes.size() - 1));
  EXPECT_REFUSED(first, kCorrupt, "part 2 of 3");
  std::filesystem::copy_file(first, second, std::filesystem::copy_options::overwrite_existing);
  EXPECT_REFUSED(first, kCorrupt, "split.no 0, expected 1");
  std::filesystem::remove(second);
  EXPECT_REFUSED(first, kNotFound, "part 2 of 3");
}

}  // namespace
}  // namespace varve::model
