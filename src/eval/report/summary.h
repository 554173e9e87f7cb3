#pragma once
// Records to the figures of a report. A function of the records alone, so that a run that was stopped and went on gives
// the same summary as one that was not.

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval/run/record.h"
#include "eval/stats/interval.h"

namespace varve::eval {

/// One arm at one length, over all items of the run.
struct ArmRow {
  std::string arm, mode, profile_digest;
  int length = 0;
  int64_t items = 0;
  int64_t n = 0;  ///< positions compared
  double kld_mean = 0, kld_median = 0, kld_p99 = 0, kld_p999 = 0, kld_max = 0;
  std::optional<Interval> kld_interval;  ///< of the mean, by cluster bootstrap; nothing below two groups
  double same_top1 = 0;                  ///< share
  double ppl = 0, ppl_ratio = 0;
  std::optional<double> peer_kld_mean, peer_same_top1;  ///< of a peer from libllama's own f16 cache
  double bytes_per_token = 0, ratio = 0;                ///< physical bytes; dense / physical
  double payload_per_token = 0, metadata_per_token = 0, scratch_per_token = 0, allocated_per_token = 0;
  std::map<std::string, Stratum> strata;
  Fallbacks fallbacks;
};

/// One task at one length, an arm beside the dense one. Task "all" is all tasks of the suite together.
struct TaskRow {
  std::string task, arm;
  int length = 0;
  int64_t n = 0, groups = 0;
  int64_t shortened = 0;                         ///< items whose document lost its middle
  double dense_score = 0, score = 0, delta = 0;  ///< means; the arm's minus dense's
  Interval interval;                             ///< 95 % of delta, within [-1, 1]
  std::string method;                            ///< of the interval: "newcombe" or "cluster bootstrap"
  int64_t wins = 0, losses = 0;                  ///< items whose score is higher, lower than dense's by kFlip
  double p = 1;                                  ///< exact McNemar of wins and losses
  bool discriminative = true;                    ///< dense scores at least one half
  std::string shows;                             ///< what n can show
};

/// Scores that differ by less are the same answer (likelihoods of the echo task are never equal).
inline constexpr double kFlip = 0.05;

struct Summary {
  std::string suite, mode, model, model_digest;
  uint64_t seed = 0;
  std::vector<ArmRow> arms;    ///< by length, in the order in which arms were first run
  std::vector<TaskRow> tasks;  ///< by length, task, arm; without the dense arm
};

/// identity: what run_identity() says. seed: of the bootstrap as well.
Summary summarize_records(const nlohmann::ordered_json& identity, const std::vector<ItemRecord>& records);

/// The document of summary.json (docs/json.md): build and machine are those of this process.
nlohmann::ordered_json summary_json(const Summary& summary, const nlohmann::ordered_json& identity,
                                    const std::string& command);

}  // namespace varve::eval
