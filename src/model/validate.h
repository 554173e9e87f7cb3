#pragma once
// Checks of a GGUF model that libllama would answer with an abort, or not at all.

#include <span>
#include <string>
#include <vector>

#include "model/gguf_file.h"
#include "model/hparams.h"
#include "varve/status.h"

namespace varve::model {

/// The file and, when it is the first of a split model, its siblings, in split order.
Result<std::vector<GgufFile>> open_model_files(const std::string& path);

/// Every tensor the architecture needs is there once, with its shape and a type the kernels have; nothing else is.
Status check_tensors(std::span<const GgufFile> files, const HParams& hparams);

/// Tokenizer arrays: present, of the right types and lengths, tokens distinct.
Status check_tokenizer(const GgufFile& file);

}  // namespace varve::model
