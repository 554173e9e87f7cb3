#pragma once
// What the lifecycle costs and what it gives, on one text: the price of measuring attention, of conversions, of a
// prefix hit, and the divergence from dense when attention returns to an old page.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "eval/divergence.h"
#include "model/model.h"
#include "varve/engine.h"

namespace varve::eval {

struct LifecycleOptions {
  Profile profile;  ///< with an anchor tier; its scoring.on is ignored, both ways are measured
  int threads = 0;
  std::string kernel;
  std::string weight_gemm = "auto";
  int depth_tokens = 8000;   ///< of the document
  int prefix_tokens = 4096;  ///< of the prefix hit
  int question_tokens = 64;
  int shift_tokens = 6144;  ///< read before attention returns
  int shift_page = 2;       ///< the page that it returns to
  int decode_tokens = 256;  ///< of the inter-token times: long enough for pages to seal and convert
  int rounds = 5;
  std::string refinement_dir = "/var/tmp";
  std::function<bool(const std::string& what, int done, int total)> progress;  ///< false cancels
};

/// Decode with the measurement of page mass on in every step, and off, taking turns from forks of one session.
struct ScoringCost {
  double off_ms = 0, on_ms = 0;  ///< medians of a step
  double overhead() const { return on_ms / off_ms - 1; }
};

struct ConversionCost {
  double tokens_per_s = 0;         ///< while the document was read, all threads
  double decode_step_ms = 0;       ///< median of a decode step
  double worst_step_ms = 0;        ///< inter-token time
  double worst_conversion_ms = 0;  ///< of one decode step
  size_t scratch_bytes = 0;        ///< codec and conversion scratch at the end
  struct Point {
    int tokens = 0;
    size_t physical_bytes = 0, dense_bytes = 0;
    int64_t recent_pages = 0, anchor_pages = 0, stale_pages = 0;
  };
  std::vector<Point> over_time;  ///< each 1,024 tokens
};

struct PrefixCost {
  int cached_tokens = 0;
  double cold_s = 0, hit_s = 0;  ///< medians of the time to the logits after the question
};

/// KL(a || b) over the question's tokens between ways to reach them.
struct PathDivergence {
  std::string path;         ///< "hit", "fork", "converting"
  DivergenceSummary cold;   ///< against a cold run of the same profile
  DivergenceSummary dense;  ///< against dense
};

/// One way of handling a return of attention.
struct ShiftArm {
  std::string name;          ///< "scoring off", "lossy", "recompute", "host", "disk"
  std::vector<double> kl;    ///< KL(dense || arm) of each token after the shift
  DivergenceSummary before;  ///< tokens up to the promotion of the page (all arms: up to the latest arm's)
  DivergenceSummary after;   ///< the rest
  int promoted_at = -1;      ///< tokens after the shift; -1: never
  uint64_t promotions = 0;   ///< of any page
  uint64_t recomputed_tokens = 0;
  size_t physical_bytes = 0, refinement_bytes = 0;
  double step_ms = 0;  ///< mean of a step after the shift
};

struct LifecycleReport {
  int tokens = 0;
  ScoringCost scoring;
  ConversionCost conversion;
  PrefixCost prefix;
  DivergenceSummary cold_dense;  ///< a cold run against dense, over the question's tokens
  std::vector<PathDivergence> paths;
  int shift_page_start = 0;
  std::vector<ShiftArm> shift;
};

/// text: at least max(depth + decode, prefix + question, shift + a page) tokens.
Result<LifecycleReport> measure_lifecycle(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text,
                                          const LifecycleOptions& options);

}  // namespace varve::eval
