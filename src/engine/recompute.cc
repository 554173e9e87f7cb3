#include "engine/recompute.h"

#include <algorithm>
#include <utility>

namespace varve::engine {

Recompute::~Recompute() {
  for (auto& [key, job] : jobs_) cache_.finish(job.reader);
}

Recompute::Jobs::iterator Recompute::of(cache::PageId page) {
  return std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) { return entry.second.pages.contains(page); });
}

Recompute::Jobs::iterator Recompute::end(Jobs::iterator job) {
  cache_.finish(job->second.reader);
  return jobs_.erase(job);
}

Recompute::State Recompute::ask(cache::SequenceId session, cache::PageId page, int start) {
  auto it = of(page);
  if (it == jobs_.end()) {
    it = jobs_.find({session, start});
    if (it == jobs_.end()) {
      const auto reader = cache_.fork(session, start);
      if (!reader.ok()) {
        const bool full = reader.status().code() == StatusCode::kResourceExhausted;
        ++refused_[full ? "recompute_no_room" : "recompute_window_gone"];
        return State::kNone;
      }
      it = jobs_.emplace(std::pair{session, start}, Job{}).first;
      it->second.session = session;
      it->second.reader = *reader;
      it->second.start = start;
    }
    it->second.pages.insert(page);
  }
  if (it->second.failed) {
    done(page);
    return State::kNone;
  }
  return it->second.fed == page_tokens_ ? State::kReady : State::kPending;
}

const uint8_t* Recompute::slot(size_t cls, cache::PageId page) {
  const auto it = of(page);
  if (it == jobs_.end() || it->second.failed) return nullptr;
  for (const cache::BlockEntry& b : cache_.blocks(it->second.reader, cls)) {
    if (b.start == it->second.start) return cache_.slot(cls, b.ref);
  }
  return nullptr;
}

void Recompute::done(cache::PageId page) {
  const auto it = of(page);
  if (it == jobs_.end()) return;
  it->second.pages.erase(page);
  if (it->second.pages.empty()) end(it);
}

void Recompute::give_up() {
  for (auto& [key, job] : jobs_) {
    cache_.finish(job.reader);  // blocks() of a finished sequence are none: slot() gives null
    if (!std::exchange(job.failed, true)) ++refused_["recompute_no_room"];
  }
}

std::optional<Recompute::Slice> Recompute::next(cache::SequenceId session, int max_rows) const {
  for (auto it = jobs_.lower_bound({session, 0}); it != jobs_.end() && it->second.session == session; ++it) {
    const Job& job = it->second;
    const int rows = std::min({tokens_per_step_, page_tokens_ - job.fed, max_rows});
    if (job.failed || rows <= 0) continue;
    return Slice{job.session, job.reader, job.start + job.fed, job.start + job.fed + rows};
  }
  return std::nullopt;
}

void Recompute::fed(const Slice& slice) {
  for (auto& [key, job] : jobs_) {
    if (job.reader == slice.reader) job.fed = slice.end - job.start;
  }
  tokens_ += static_cast<uint64_t>(slice.end - slice.begin);
}

void Recompute::fail(const Slice& slice) {
  for (auto& [key, job] : jobs_) {
    if (job.reader != slice.reader) continue;
    job.failed = true;
    ++refused_["recompute_no_room"];
  }
}

}  // namespace varve::engine
