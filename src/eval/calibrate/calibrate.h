#pragma once
// What each page format costs a model, layer by layer, and the assignment of formats that costs least
// (docs/adr/0014-how-calibrate-measures-and-solves.md).

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/divergence.h"
#include "model/model.h"
#include "varve/engine.h"

namespace varve::eval {

/// Widths of a side, finest first, as in "k5v4".
inline const std::vector<std::string> kCalibratedK = {"8", "6", "5", "4", "3", "2"};
inline const std::vector<std::string> kCalibratedV = {"8", "4", "3", "2"};

/// How pages age: what the solver tries besides the formats.
struct PageShape {
  int page_tokens = 128;
  int recent_tokens = 256;
};

struct CalibrateOptions {
  Profile base;  ///< recent format, sinks, norm correction; its stale formats are what is solved for
  /// The first is also the shape that layers are measured in. The one whose solution has the least measured KL wins.
  std::vector<PageShape> shapes = {{128, 256}, {128, 128}, {64, 256}, {64, 128}, {64, 64}};
  int prefill_tokens = 1024;  ///< of each passage: read once by the dense cache, then stored by every arm
  int eval_tokens = 64;       ///< read on top by every arm and compared; at least 64, so that weights are fp32
  /// Codecs that are measured on every passage, coarse ones, whose KL stands out of the noise. From them comes one
  /// sensitivity for each layer and side, and the cost of every codec is that times its squared error.
  std::vector<std::string> measured_k = {"3"}, measured_v = {"3"};
  /// Rotation seeds: arms store the n-th passage with the n-th, round and round.
  std::vector<uint64_t> measure_seeds = {1, 2, 3};
  /// How many passages the layers' mean weighs in a layer's sensitivity: what a layer costs differs by passage up to a
  /// hundred times, and the layer that looks cheapest has had the luckiest passages.
  double prior_passages = 1;
  int length_tokens = 8192;                       ///< session length that the bytes are counted for
  double budget_ratio = 3.63;                     ///< physical bytes at most dense bytes / this; 0: max_kl decides
  double max_kl = 0;                              ///< mean KL over the passages, the whole profile measured
  std::vector<uint64_t> check_seeds = {1, 2, 3};  ///< rotation seeds of the check
  int check_tokens = 1536;                        ///< of the held-out text, read over the arm's own pages
  int threads = 0;
  std::string kernel;
  /// Model tokens read so far and in all; false cancels.
  std::function<bool(const std::string& what, int64_t done, int64_t total)> progress;
};

struct CodecCost {
  std::string codec;
  double kl = 0;     ///< what the codec in this layer alone costs, nats a token: sensitivity times error
  double error = 0;  ///< mean squared error of a row
  /// By an arm of its own on each passage; empty when the codec was not measured.
  std::vector<double> kl_by_passage;
  double same_top = 1;  ///< by those arms
  bool measured() const { return !kl_by_passage.empty(); }
};

struct LayerCosts {
  int layer = 0;  ///< the model's number
  std::string centre;
  /// A short window is mostly recent pages: all pages of the layer have one format, which they are sealed in.
  bool one_format = false;
  std::vector<CodecCost> k, v;                  ///< as kCalibratedK, kCalibratedV
  double k_sensitivity = 0, v_sensitivity = 0;  ///< KL by squared error
};

/// One candidate of the last choice.
struct ShapeResult {
  PageShape shape;
  bool uniform = false;     ///< the same widths in every layer: what a solution must not be worse than
  double predicted_kl = 0;  ///< sum of the layers' costs; of a uniform candidate 0 when it is the base profile
  double measured_kl = 0;   ///< stored as the arms are, read in steps of 64 tokens; mean over the passages
  std::vector<double> kl_by_passage;
  double same_top = 0;
  double ratio = 0;
  bool reachable = false;
};

struct TextCheck {
  int tokens = 0, compared = 0;
  std::vector<DivergenceSummary> minima;      ///< the base profile on the same text, by check_seeds
  std::vector<DivergenceSummary> calibrated;  ///< by check_seeds
  /// Formats chosen by layer that were worse here than the uniform ones, which then became the profile; else empty.
  std::vector<DivergenceSummary> refused;
};

struct Calibration {
  Profile profile;  ///< without name, description and record
  std::string model_digest;
  std::vector<LayerCosts> layers;
  std::vector<ShapeResult> shapes;
  size_t chosen = 0;     ///< among shapes
  double minima_kl = 0;  ///< the base profile, measured as the shapes are
  std::vector<double> minima_by_passage;
  double minima_ratio = 0;
  size_t dense_bytes = 0, physical_bytes = 0, scratch_bytes = 0;
  double least_ratio = 0, most_ratio = 0;  ///< with what is solved for in 8 bits, and in 2, over all shapes
  TextCheck held_out;
  double seconds = 0;
};

/// Passages: each at least prefill_tokens + eval_tokens; the more they differ, the better the profile carries over.
/// held_out: at least check_tokens, of a text that no passage is from. The model: loaded without repacking, or its
/// repacked matrices blur what is measured. kInvalidArgument with the numbers when a text is too short or no assignment
/// meets the budget; kCancelled.
Result<Calibration> calibrate(const std::shared_ptr<model::Model>& model,
                              std::span<const std::vector<int32_t>> passages, std::span<const int32_t> held_out,
                              const CalibrateOptions& options);

}  // namespace varve::eval
