#include "model/validate.h"

#include <ggml.h>
#include <llama.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "model/arch/architecture.h"

namespace varve::model {
namespace {

/// Types with a row getter and a dot product in ggml's CPU backend, and without side tensors (NVFP4's scales).
constexpr std::array kWeightTypes{
    GGML_TYPE_F32,    GGML_TYPE_F16,     GGML_TYPE_BF16,  GGML_TYPE_Q4_0,    GGML_TYPE_Q4_1,
    GGML_TYPE_Q5_0,   GGML_TYPE_Q5_1,    GGML_TYPE_Q8_0,  GGML_TYPE_Q2_K,    GGML_TYPE_Q3_K,
    GGML_TYPE_Q4_K,   GGML_TYPE_Q5_K,    GGML_TYPE_Q6_K,  GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS,
    GGML_TYPE_IQ2_S,  GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ3_S, GGML_TYPE_IQ1_S,   GGML_TYPE_IQ1_M,
    GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS,  GGML_TYPE_TQ1_0, GGML_TYPE_TQ2_0,   GGML_TYPE_MXFP4,
};

std::string shape(std::initializer_list<int64_t> sizes) {
  std::string text;
  for (const int64_t n : sizes) text += (text.empty() ? "[" : ", ") + std::to_string(n);
  return text += ']';
}

struct Found {
  ggml_type type;
  const int64_t* ne;  ///< [GGML_MAX_DIMS]
};

Status check_one(const std::string& path, const TensorSpec& spec, const Found& found) {
  const std::string name = path + ": tensor " + spec.name;
  if (found.ne[0] != spec.columns || found.ne[1] != spec.rows || found.ne[2] != 1 || found.ne[3] != 1) {
    return corrupt(name + " has shape " + shape({found.ne[0], found.ne[1], found.ne[2], found.ne[3]}) + ", expected " +
                   shape({spec.columns, spec.rows}));
  }
  const bool vector = spec.rows == 1;
  if (vector && found.type != GGML_TYPE_F32) {
    return unsupported(name + " is " + ggml_type_name(found.type) + ", expected f32");
  }
  if (!vector && std::find(kWeightTypes.begin(), kWeightTypes.end(), found.type) == kWeightTypes.end()) {
    return unsupported(name + " has type " + ggml_type_name(found.type) + ", which is no supported weight type");
  }
  return Status();
}

}  // namespace

Result<std::vector<GgufFile>> open_model_files(const std::string& path) {
  std::vector<GgufFile> files;
  Result<GgufFile> first = GgufFile::open(path);
  if (!first.ok()) return first.status();
  files.push_back(std::move(first).value());

  uint16_t count = 0, number = 0;
  if (Status s = files[0].get("split.count", &count, false); !s.ok()) return s;
  if (count <= 1) return files;
  int32_t tensors_claimed = 0;
  if (Status s = files[0].get("split.no", &number, true); !s.ok()) return s;
  if (Status s = files[0].get("split.tensors.count", &tensors_claimed, true); !s.ok()) return s;
  if (number != 0) {
    return invalid_argument(path + " is part " + std::to_string(number + 1) + " of " + std::to_string(count) +
                            " of a split model; name the first part");
  }
  std::string buffer(path.size() + 64, '\0');
  const int prefix_bytes = llama_split_prefix(buffer.data(), buffer.size(), path.c_str(), number, count);
  if (prefix_bytes <= 0) {
    return invalid_argument(path + " holds a model split into " + std::to_string(count) +
                            " files but is not named <name>-00001-of-0000N.gguf, so its siblings cannot be found");
  }
  const std::string prefix = buffer.substr(0, static_cast<size_t>(prefix_bytes));
  int64_t tensors = gguf_get_n_tensors(files[0].context());
  for (int i = 1; i < count; ++i) {
    const int bytes = llama_split_path(buffer.data(), buffer.size(), prefix.c_str(), i, count);
    Result<GgufFile> part = GgufFile::open(buffer.substr(0, static_cast<size_t>(std::max(bytes, 0))));
    if (!part.ok()) {
      const Status& s = part.status();
      return Status(s.code(), "part " + std::to_string(i + 1) + " of " + std::to_string(count) + ": " + s.message());
    }
    uint16_t actual = 0;
    if (Status s = part->get("split.no", &actual, true); !s.ok()) return s;
    if (actual != i) {
      return corrupt(part->path() + " says split.no " + std::to_string(actual) + ", expected " + std::to_string(i));
    }
    tensors += gguf_get_n_tensors(part->context());
    files.push_back(std::move(part).value());
  }
  if (tensors != tensors_claimed) {
    return corrupt(path + ": split.tensors.count is " + std::to_string(tensors_claimed) + ", the " +
                   std::to_string(count) + " files hold " + std::to_string(tensors) + " tensors");
  }
  return files;
}

Status check_tensors(std::span<const GgufFile> files, const HParams& hparams) {
  const std::string& path = files[0].path();
  std::unordered_map<std::string_view, Found> found;
  for (const GgufFile& file : files) {
    const gguf_context* c = file.context();
    for (int64_t i = 0; i < gguf_get_n_tensors(c); ++i) {
      const Found f{gguf_get_tensor_type(c, i), gguf_get_tensor_ne(c, i)};
      if (!found.emplace(gguf_get_tensor_name(c, i), f).second) {
        return corrupt(path + ": tensor " + gguf_get_tensor_name(c, i) + " is in more than one file of the split");
      }
    }
  }
  for (const TensorSpec& spec : find_architecture(hparams.architecture)->tensors(hparams)) {
    const auto it = found.find(spec.name);
    if (it == found.end()) {
      if (!spec.required) continue;
      return corrupt(path + ": tensor " + spec.name + " " + shape({spec.columns, spec.rows}) + " is missing");
    }
    if (Status s = check_one(path, spec, it->second); !s.ok()) return s;
    found.erase(it);
  }
  if (found.empty()) return Status();
  return unsupported(path + ": " + std::to_string(found.size()) + " tensors are unknown for architecture " +
                     hparams.architecture + ", e.g. " + std::string(found.begin()->first));
}

Status check_tokenizer(const GgufFile& file) {
  const auto key = [](const char* name) { return std::string("tokenizer.ggml.") + name; };
  std::string model;
  if (Status s = file.get(key("model"), &model, true); !s.ok()) return s;
  if (model != "llama" && model != "gpt2") {
    return unsupported(file.path() + ": tokenizer model '" + model + "' is not supported (supported: llama, gpt2)");
  }
  const auto check_array = [&](const char* name, std::initializer_list<gguf_type> types, size_t length) {
    const std::string full = key(name);
    const gguf_type type = file.array_type(full);
    if (type == GGUF_TYPE_COUNT) return corrupt(file.path() + ": " + full + " is missing or not an array");
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      return corrupt(file.path() + ": " + full + " is an array of " + gguf_type_name(type) + ", expected " +
                     gguf_type_name(*types.begin()));
    }
    if (length != 0 && file.array_size(full) != length) {
      return corrupt(file.path() + ": " + full + " has " + std::to_string(file.array_size(full)) + " entries, " +
                     key("tokens") + " has " + std::to_string(length));
    }
    return Status();
  };
  if (Status s = check_array("tokens", {GGUF_TYPE_STRING}, 0); !s.ok()) return s;
  const size_t tokens = file.array_size(key("tokens"));
  if (tokens == 0 || tokens > (size_t{1} << 24)) {
    return corrupt(file.path() + ": " + key("tokens") + " has " + std::to_string(tokens) +
                   " entries, must be between 1 and " + std::to_string(1 << 24));
  }
  if (file.has(key("scores"))) {
    if (Status s = check_array("scores", {GGUF_TYPE_FLOAT32, GGUF_TYPE_INT32}, tokens); !s.ok()) return s;
  }
  if (file.has(key("token_type"))) {
    if (Status s = check_array("token_type", {GGUF_TYPE_INT32}, tokens); !s.ok()) return s;
  }
  if (model == "gpt2") {
    if (Status s = check_array("merges", {GGUF_TYPE_STRING}, 0); !s.ok()) return s;
  }

  const int64_t id = file.find(key("tokens"));
  std::unordered_map<std::string_view, size_t> seen;
  seen.reserve(tokens);
  for (size_t i = 0; i < tokens; ++i) {
    const std::string_view text = gguf_get_arr_str(file.context(), id, i);
    if (text.empty()) continue;  // libllama gives each its own name
    const auto [it, fresh] = seen.emplace(text, i);
    if (!fresh) {
      return corrupt(file.path() + ": tokens " + std::to_string(it->second) + " and " + std::to_string(i) +
                     " have the same text");
    }
  }
  return Status();
}

}  // namespace varve::model
