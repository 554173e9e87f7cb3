#pragma once
// The sampling flags of run and chat, by the names llama.cpp's users type.

#include "model/sampler.h"

namespace CLI {
class App;
}

namespace varve::cli {

struct SamplingOptions {
  model::SamplerOptions sampler;
  int max_tokens = 512;
};

void add_sampling_options(CLI::App& app, SamplingOptions& options);

}  // namespace varve::cli
