#include "eval/report/summary.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "base/build_info.h"
#include "eval/run/plan.h"
#include "eval/stats/limits.h"
#include "eval/stats/mean.h"
#include "eval/stats/paired.h"

namespace varve::eval {
namespace {

using Json = nlohmann::ordered_json;
using Pick = std::vector<const ItemRecord*>;

constexpr const char* kAllTasks = "all";

double mean_kl(const Divergences& d) {
  double sum = 0;
  for (const double v : d.kl) sum += v;
  return d.kl.empty() ? 0 : sum / double(d.kl.size());
}

ArmRow arm_row(const Pick& records, uint64_t seed) {
  ArmRow row;
  const ItemRecord& first = *records[0];
  row.arm = first.arm;
  row.mode = first.mode;
  row.profile_digest = first.profile_digest;
  row.length = first.length;
  row.items = static_cast<int64_t>(records.size());
  std::vector<double> all, means;
  std::vector<std::string> groups;
  double same = 0, nll = 0, nll_reference = 0, peer_sum = 0, peer_same = 0, peer_n = 0;
  double tokens = 0, dense = 0, physical = 0, payload = 0, metadata = 0, scratch = 0, allocated = 0;
  for (const ItemRecord* r : records) {
    const Divergences& d = r->divergence;
    all.insert(all.end(), d.kl.begin(), d.kl.end());
    if (!d.kl.empty()) {
      means.push_back(mean_kl(d));
      groups.push_back(r->group);
    }
    same += double(d.same_top);
    nll += d.nll;
    nll_reference += d.nll_reference;
    for (const double v : r->peer_divergence.kl) peer_sum += v;
    peer_n += double(r->peer_divergence.kl.size());
    peer_same += double(r->peer_divergence.same_top);
    for (const auto& [name, s] : r->strata) {
      Stratum& sum = row.strata[name];
      sum.n += s.n;
      sum.kl_sum += s.kl_sum;
      sum.same_top += s.same_top;
    }
    for (const auto& [reason, count] : r->fallbacks) row.fallbacks[reason] += count;
    tokens += r->context_tokens;
    dense += double(r->bytes.kv.dense_bytes);
    physical += double(r->bytes.kv.physical_bytes);
    payload += double(r->bytes.kv.payload_bytes);
    metadata += double(r->bytes.kv.metadata_bytes);
    scratch += double(r->bytes.kv.scratch_bytes);
    allocated += double(r->bytes.allocated_bytes);
  }
  row.n = static_cast<int64_t>(all.size());
  if (row.n > 0) {
    const double n = double(row.n);
    std::sort(all.begin(), all.end());
    const auto rank = [&](double q) { return all[static_cast<size_t>(std::ceil(q * n)) - 1]; };
    for (const double v : all) row.kld_mean += v / n;
    row.kld_median = rank(0.5);
    row.kld_p99 = rank(0.99);
    row.kld_p999 = rank(0.999);
    row.kld_max = all.back();
    row.same_top1 = same / n;
    row.ppl = std::exp(nll / n);
    row.ppl_ratio = std::exp((nll - nll_reference) / n);
    const MeanInterval interval = cluster_bootstrap(means, groups, {.seed = seed});
    if (interval.groups > 1) row.kld_interval = interval.interval;
  }
  if (peer_n > 0) {
    row.peer_kld_mean = peer_sum / peer_n;
    row.peer_same_top1 = peer_same / peer_n;
  }
  if (tokens > 0) {
    row.bytes_per_token = physical / tokens;
    row.payload_per_token = payload / tokens;
    row.metadata_per_token = metadata / tokens;
    row.scratch_per_token = scratch / tokens;
    row.allocated_per_token = allocated / tokens;
  }
  row.ratio = physical > 0 ? dense / physical : 0;
  return row;
}

bool is_binary(const ItemRecord& r) { return r.score == 0 || r.score == 1; }

/// records and dense: the same items in the same order.
TaskRow task_row(const std::string& task, const Pick& records, const Pick& dense, uint64_t seed) {
  TaskRow row;
  row.task = task;
  row.arm = records[0]->arm;
  row.length = records[0]->length;
  row.n = static_cast<int64_t>(records.size());
  std::vector<double> differences, scores, dense_scores;
  std::vector<std::string> groups;
  bool binary = true;
  for (size_t i = 0; i < records.size(); ++i) {
    const double a = records[i]->score, d = dense[i]->score;
    scores.push_back(a);
    dense_scores.push_back(d);
    differences.push_back(a - d);
    groups.push_back(records[i]->group);
    row.score += a / double(row.n);
    row.dense_score += d / double(row.n);
    row.wins += a - d >= kFlip;
    row.losses += d - a >= kFlip;
    row.shortened += records[i]->dropped_tokens > 0;
    binary = binary && is_binary(*records[i]) && is_binary(*dense[i]);
  }
  const std::set<std::string> distinct(groups.begin(), groups.end());
  row.groups = static_cast<int64_t>(distinct.size());
  row.delta = row.score - row.dense_score;
  const Interval newcombe = newcombe_paired(count_pairs(dense_scores, scores));
  if (binary && (row.groups == row.n || row.wins + row.losses == 0)) {
    row.method = "newcombe";
    row.interval = newcombe;
  } else {
    row.method = "cluster bootstrap";
    row.interval = cluster_bootstrap(differences, groups, {.seed = seed}).interval;
    // A few haystacks with equal means would make an interval of no width; dependence only ever widens one.
    if (binary || row.interval.lo == row.interval.hi) {
      row.interval = {std::min(row.interval.lo, newcombe.lo), std::max(row.interval.hi, newcombe.hi)};
    }
  }
  row.interval = {std::max(row.interval.lo, -1.0), std::min(row.interval.hi, 1.0)};
  row.p = mcnemar_exact(row.wins, row.losses);
  row.discriminative = row.dense_score >= 0.5;
  row.shows = what_n_shows(row.n, row.wins, row.losses);
  return row;
}

/// Values in the order in which they first appear.
template <typename T, typename Key>
std::vector<T> distinct(const std::vector<ItemRecord>& records, const Key& key) {
  std::vector<T> out;
  for (const ItemRecord& r : records) {
    if (std::ranges::find(out, key(r)) == out.end()) out.push_back(key(r));
  }
  return out;
}

/// Records in the order of their ids, so that nothing depends on when each was done.
Pick pick(const std::vector<ItemRecord>& records, const std::string& arm, int length, const std::string& task) {
  Pick out;
  for (const ItemRecord& r : records) {
    if (r.arm == arm && r.length == length && (task == kAllTasks || r.task == task)) out.push_back(&r);
  }
  std::ranges::sort(out, {}, [](const ItemRecord* r) { return r->id; });
  return out;
}

/// Both lists cut to the items that they share.
void keep_common(Pick& a, Pick& b) {
  Pick both_a, both_b;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i]->id < b[j]->id) {
      ++i;
    } else if (b[j]->id < a[i]->id) {
      ++j;
    } else {
      both_a.push_back(a[i++]);
      both_b.push_back(b[j++]);
    }
  }
  a = std::move(both_a);
  b = std::move(both_b);
}

Json interval_json(const std::optional<Interval>& interval, bool low) {
  return interval ? Json(low ? interval->lo : interval->hi) : Json();
}

Json arm_json(const ArmRow& a) {
  Json strata = Json::object();
  for (const auto& [name, s] : a.strata) {
    strata[name] = {{"n", s.n}, {"kld_mean", s.kl_sum / double(s.n)}, {"same_top1", double(s.same_top) / double(s.n)}};
  }
  Json json = {{"arm", a.arm},
               {"length", a.length},
               {"n", a.n},
               {"kld_mean", a.kld_mean},
               {"kld_p99", a.kld_p99},
               {"same_top1", a.same_top1},
               {"ppl_ratio", a.ppl_ratio},
               {"bytes_per_token", a.bytes_per_token},
               {"ratio", a.ratio},
               {"mode", a.mode},
               {"profile_digest", a.profile_digest},
               {"items", a.items},
               {"kld_lo", interval_json(a.kld_interval, true)},
               {"kld_hi", interval_json(a.kld_interval, false)},
               {"kld_median", a.kld_median},
               {"kld_p999", a.kld_p999},
               {"kld_max", a.kld_max},
               {"ppl", a.ppl},
               {"peer_kld_mean", a.peer_kld_mean ? Json(*a.peer_kld_mean) : Json()},
               {"peer_same_top1", a.peer_same_top1 ? Json(*a.peer_same_top1) : Json()},
               {"payload_bytes_per_token", a.payload_per_token},
               {"metadata_bytes_per_token", a.metadata_per_token},
               {"scratch_bytes_per_token", a.scratch_per_token},
               {"allocated_bytes_per_token", a.allocated_per_token},
               {"strata", std::move(strata)},
               {"fallbacks", Json::object()}};
  for (const auto& [reason, count] : a.fallbacks) json["fallbacks"][reason] = count;
  return json;
}

Json task_json(const TaskRow& t) {
  return {{"task", t.task},
          {"length", t.length},
          {"arm", t.arm},
          {"n", t.n},
          {"score", t.score},
          {"delta", t.delta},
          {"lo", t.interval.lo},
          {"hi", t.interval.hi},
          {"wins", t.wins},
          {"losses", t.losses},
          {"discriminative", t.discriminative},
          {"dense_score", t.dense_score},
          {"groups", t.groups},
          {"shortened", t.shortened},
          {"interval", t.method},
          {"mcnemar_p", t.p},
          {"shows", t.shows}};
}

}  // namespace

Summary summarize_records(const Json& identity, const std::vector<ItemRecord>& records) {
  Summary out;
  out.suite = identity.at("suite").get<std::string>();
  out.mode = identity.at("mode").get<std::string>();
  out.model = identity.at("model").get<std::string>();
  out.model_digest = identity.at("model_digest").get<std::string>();
  out.seed = identity.at("seed").get<uint64_t>();
  auto lengths = distinct<int>(records, [](const ItemRecord& r) { return r.length; });
  std::ranges::sort(lengths);
  const auto arms = distinct<std::string>(records, [](const ItemRecord& r) { return r.arm; });
  auto tasks = distinct<std::string>(records, [](const ItemRecord& r) { return r.task; });
  if (tasks.size() > 1) tasks.push_back(kAllTasks);
  const bool kld = out.suite == kKldSuite;
  for (const int length : lengths) {
    for (const std::string& arm : arms) {
      const Pick all = pick(records, arm, length, kAllTasks);
      if (!all.empty()) out.arms.push_back(arm_row(all, out.seed));
    }
    for (size_t t = 0; !kld && t < tasks.size(); ++t) {
      for (const std::string& arm : arms) {
        if (arm == kReferenceArm) continue;
        Pick mine = pick(records, arm, length, tasks[t]), dense = pick(records, kReferenceArm, length, tasks[t]);
        keep_common(mine, dense);
        if (!mine.empty()) out.tasks.push_back(task_row(tasks[t], mine, dense, out.seed));
      }
    }
  }
  return out;
}

Json summary_json(const Summary& summary, const Json& identity, const std::string& command) {
  const BuildInfo& build = build_info();
  const MachineInfo machine = machine_info();
  Json arms = Json::array(), tasks = Json::array();
  for (const ArmRow& a : summary.arms) arms.push_back(arm_json(a));
  for (const TaskRow& t : summary.tasks) tasks.push_back(task_json(t));
  return {{"model", summary.model},
          {"suite", summary.suite},
          {"mode", summary.mode},
          {"seed", summary.seed},
          {"arms", std::move(arms)},
          {"tasks", std::move(tasks)},
          {"model_digest", summary.model_digest},
          {"command", command},
          {"run", identity},
          {"build",
           {{"version", build.version},
            {"build_type", build.build_type},
            {"compiler", build.compiler},
            {"sanitizers", build.sanitizers},
            {"ggml_isa", build.ggml_isa},
            {"llama_cpp", {{"source", build.llama_cpp}, {"sha256", build.llama_cpp_sha256}}}}},
          {"machine", {{"cpu", machine.cpu}, {"cores", machine.cores}, {"features", machine.features}}}};
}

}  // namespace varve::eval
