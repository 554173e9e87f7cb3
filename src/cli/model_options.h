#pragma once
// The options that every command with a model shares, and what they open.

#include <fstream>
#include <memory>
#include <string>

#include "model/model.h"
#include "varve/engine.h"

namespace CLI {
class App;
}

namespace varve::cli {

struct ModelOptions {
  std::string model;
  std::string model_dir;
  std::string profile = "minima";
  std::string cache_type_k, cache_type_v;
  std::string kv_budget;
  std::string kernel;
  std::string weight_gemm = "auto";
  std::string trace;
  std::string scoring, restore;
  std::string restore_dir = "/var/tmp";
  std::string prefix_cache = "256M";
  int context_tokens = 0;
  int threads = 0;
  int chunk_tokens = 512;
  int gpu_layers = 0;
};

/// The file of --trace. A line that cannot be written ends it; status() says so when the run is over.
class TraceFile {
 public:
  Status open(const std::string& path, const std::string& header);
  void line(const std::string& text);
  const Status& status() const { return status_; }

 private:
  std::string path_;
  std::ofstream file_;
  Status status_;
};

/// -m, --model-dir.
void add_model_option(CLI::App& app, ModelOptions& options);
/// --profile, -ctk, -ctv, --scoring, --restore, --restore-dir, -c, -t, --kv-budget, --prefix-cache, --chunk, --kernel,
/// --weight-gemm, --trace, -ngl.
void add_engine_options(CLI::App& app, ModelOptions& options);

/// Loads -m with a progress line. kNotFound says how to get it. repack: as model::LoadOptions has it.
Result<std::shared_ptr<model::Model>> open_model(const ModelOptions& options, bool repack = true);
/// --profile, or the uniform profile that -ctk/-ctv name.
Result<Profile> choose_profile(const ModelOptions& options);
Result<std::unique_ptr<Engine>> open_engine(const std::shared_ptr<model::Model>& model, const ModelOptions& options,
                                            const Profile& profile, TraceFile& trace);

/// Whether a file can be written (an empty name: yes), found out before a model is read; creates nothing.
Status check_writable(const std::string& path);

/// "8G", "512M", "65536": bytes, powers of 1024.
Result<size_t> parse_bytes(const std::string& text);
/// A token count with an optional K (1,024): "8K", "4096".
Result<int> parse_tokens(const std::string& text);

}  // namespace varve::cli
