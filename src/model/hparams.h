#pragma once
// The hyper-parameters of a GGUF file, read and bounded by us before libllama trusts them.

#include <cstdint>
#include <string>
#include <vector>

#include "model/gguf_file.h"
#include "model/rope.h"
#include "varve/status.h"

namespace varve::model {

struct HParams {
  std::string architecture, name;
  int layers = 0, embedding = 0, heads = 0, kv_heads = 0, head_dim = 0, feed_forward = 0;
  int vocabulary = 0;  ///< tokens of the tokenizer = rows of the embedding
  int context_train = 0;
  float rms_eps = 0;
  float attention_scale = 0;
  float logit_softcap = 0;    ///< 0: none
  int window = 0;             ///< tokens a sliding layer sees, itself included; 0: no sliding layers
  std::vector<bool> sliding;  ///< [layers]
  RopeParams rope, rope_sliding;
};

/// Values within bounds and consistent with each other, else kUnsupported (a valid model we have no code for) or
/// kCorrupt (a value no model can have). Messages name the key and the numbers.
Result<HParams> read_hparams(const GgufFile& file);

}  // namespace varve::model
