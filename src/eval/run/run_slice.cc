#include "eval/run/run_slice.h"

#include <algorithm>

#include "base/clock.h"
#include "eval/run/compare.h"
#include "model/text.h"

namespace varve::eval {
namespace {

/// The arms that must run for `todo`, references first.
std::vector<size_t> with_references(const EvalOptions& options, const std::vector<size_t>& todo) {
  std::vector<size_t> all = {0};  // dense
  const auto peer_todo = std::ranges::any_of(todo, [&](size_t i) { return options.arms[i].kind == ArmKind::kPeer; });
  for (size_t i = 0; peer_todo && i < options.arms.size(); ++i) {
    if (options.arms[i].name == kPeerReferenceArm) all.push_back(i);
  }
  for (const size_t i : todo) {
    if (std::ranges::find(all, i) == all.end()) all.push_back(i);
  }
  return all;
}

/// "context 1K-2K": how much was read before the position.
std::string context_stratum(int position) {
  int end = 1024;
  while (position >= end) end *= 2;
  const std::string begin = end == 1024 ? "0" : std::to_string(end / 2048) + "K";
  return "context " + begin + "-" + std::to_string(end / 1024) + "K";
}

/// How far the position is behind the border of the page that was filled last.
std::string page_stratum(int position, int page_tokens) {
  const int distance = position % page_tokens;
  return distance < 32 ? "page end +0-31" : distance < 64 ? "page end +32-63" : "page end +64 and more";
}

class SliceRun {
 public:
  SliceRun(Team& team, const Slice& slice, const std::vector<size_t>& todo)
      : team_(team), slice_(slice), todo_(todo), runners_(with_references(team.options(), todo)) {}

  Status run() {
    team_.begin(slice_.text + ", " + std::to_string(slice_.length) + " tokens");
    if (Status s = find_digits(); !s.ok()) return s;
    for (const size_t i : runners_) {
      auto arm = team_.arm(i);
      if (!arm.ok()) return arm.status();
      arms_.push_back(*arm);
      records_.push_back(team_.new_record(i));
      before_.push_back((*arm)->fallbacks());
    }
    const int skip = first_compared(team_.options().mode, slice_.length);
    const int begin = team_.options().mode == Mode::kA ? skip : 0;
    if (Status s = start(begin); !s.ok()) return s;
    // The last token is only predicted.
    const int end = static_cast<int>(slice_.tokens.size()) - 1;
    for (int at = begin; at < end;) {
      const int limit = at < skip ? skip : end;
      const int n = std::min(team_.options().step_tokens(), limit - at);
      if (Status s = step(at, n, at >= skip); !s.ok()) return s;
      at += n;
    }
    return store();
  }

 private:
  Status find_digits() {
    for (const int32_t token : slice_.tokens) {
      const auto text = model::piece(team_.model(), token, false);
      if (!text.ok()) return text.status();
      digits_.push_back(std::ranges::any_of(*text, [](char c) { return c >= '0' && c <= '9'; }));
    }
    return {};
  }

  /// What is read before the comparison may begin: the context of mode A, else nothing.
  Status start(int tokens) {
    const std::span<const int32_t> context(slice_.tokens.data(), static_cast<size_t>(tokens));
    for (size_t r = 0; r < runners_.size(); ++r) {
      const double started = now_s();
      const bool adopts = tokens > 0 && r > 0 && team_.specs()[runners_[r]].kind == ArmKind::kOurs;
      Status s =
          adopts ? arms_[r]->adopt(*arms_[0]) : arms_[r]->read(context, [&](int) { return team_.count(0).ok(); });
      if (s.ok()) s = team_.count(tokens);
      if (!s.ok()) return s;
      records_[r].seconds += now_s() - started;
    }
    return {};
  }

  Status step(int at, int n, bool compared) {
    const std::span<const int32_t> tokens(slice_.tokens.data() + at, static_cast<size_t>(n));
    const std::span<const int32_t> next(slice_.tokens.data() + at + 1, static_cast<size_t>(n));
    for (size_t r = 0; r < runners_.size(); ++r) {
      const ArmSpec& spec = team_.specs()[runners_[r]];
      const bool is_peer_reference = spec.name == kPeerReferenceArm;
      std::vector<float>& rows = r == 0 ? dense_rows_ : is_peer_reference ? peer_rows_ : rows_;
      const double started = now_s();
      if (Status s = arms_[r]->step(tokens, compared, rows); !s.ok()) {
        return Status(s.code(), "arm " + spec.name + ": " + s.message());
      }
      records_[r].seconds += now_s() - started;
      if (Status s = team_.count(n); !s.ok()) return s;
      const bool wanted = std::ranges::find(todo_, runners_[r]) != todo_.end();
      if (!compared || !wanted) continue;
      const int threads = team_.options().threads;
      const auto divergences = compare_rows(dense_rows_, rows, team_.vocabulary(), next, threads);
      if (Status s = check_finite(divergences, spec.name); !s.ok()) return s;
      add(records_[r], divergences, at, spec);
      if (spec.kind != ArmKind::kPeer || peer_rows_.empty()) continue;
      for (const TokenDivergence& t : compare_rows(peer_rows_, rows, team_.vocabulary(), next, threads)) {
        records_[r].peer_divergence.add(t);
      }
    }
    return {};
  }

  void add(ItemRecord& record, const std::vector<TokenDivergence>& divergences, int at, const ArmSpec& spec) {
    for (size_t i = 0; i < divergences.size(); ++i) {
      const TokenDivergence& t = divergences[i];
      record.divergence.add(t);
      const int position = at + static_cast<int>(i);
      const bool digit = digits_[static_cast<size_t>(position) + 1];
      std::vector<std::string> strata = {context_stratum(position), digit ? "digits" : "no digits"};
      if (spec.kind == ArmKind::kOurs) strata.push_back(page_stratum(position, spec.profile.page_tokens));
      for (const std::string& name : strata) {
        Stratum& s = record.strata[name];
        ++s.n;
        s.kl_sum += t.kl;
        s.same_top += t.same_top;
      }
    }
  }

  Status store() {
    for (size_t r = 0; r < runners_.size(); ++r) {
      if (std::ranges::find(todo_, runners_[r]) == todo_.end()) continue;
      ItemRecord& record = records_[r];
      record.id = slice_.id;
      record.task = kKldSuite;
      record.group = slice_.id;
      record.length = slice_.length;
      record.prompt_sha256 = slice_.sha256;
      record.prompt_tokens = static_cast<int>(slice_.tokens.size());
      record.context_tokens = record.prompt_tokens - 1;
      record.bytes = arms_[r]->bytes();
      record.fallbacks = difference(arms_[r]->fallbacks(), before_[r]);
      if (Status s = team_.store().add(std::move(record)); !s.ok()) return s;
    }
    return {};
  }

  Team& team_;
  const Slice& slice_;
  const std::vector<size_t>& todo_;
  const std::vector<size_t> runners_;  ///< todo_ and the references, as indices of arms; dense first
  std::vector<Arm*> arms_;             ///< by runner, as the next two
  std::vector<ItemRecord> records_;
  std::vector<Fallbacks> before_;
  std::vector<bool> digits_;  ///< by token: its text has one
  std::vector<float> dense_rows_, peer_rows_, rows_;
};

}  // namespace

int first_compared(Mode mode, int length) {
  return mode == Mode::kA ? length - std::min(512, length / 4) : std::min(1024, length / 4);
}

Status run_slice(Team& team, const Slice& slice, const std::vector<size_t>& todo) {
  return SliceRun(team, slice, todo).run();
}

int64_t slice_tokens(const EvalOptions& options, const Slice& slice, const std::vector<size_t>& todo) {
  return static_cast<int64_t>(with_references(options, todo).size()) * (static_cast<int64_t>(slice.tokens.size()) - 1);
}

}  // namespace varve::eval
