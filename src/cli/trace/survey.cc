#include "cli/trace/survey.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "cli/trace/reader.h"

namespace varve::cli {
namespace {

constexpr uint64_t kProgressLines = 4096;
constexpr size_t kListedSessions = 10;
constexpr const char* kReference = "reference";  // a hit: the page is shared, nothing is written
constexpr const char* kFinished = "finished";
constexpr int64_t kLeastPageTokens = 64;  // pages are multiples of it; known when only first pages are in the trace

void count_move(const TraceEvent& e, TraceSurvey* out) {
  MoveKey key{e.from, e.to, e.why, e.how};
  if (out->moves.size() >= kMostMoveKinds && !out->moves.contains(key)) key.why = key.how = kOtherWord;
  MoveCount& count = out->moves[key];
  switch (e.outcome) {
    case TraceOutcome::kPublished:
      ++count.published;
      if (e.how != kReference) count.bytes += e.to_bytes;
      count.most_microseconds = std::max(count.most_microseconds, e.microseconds);
      if (e.microseconds > (out->slowest ? out->slowest->microseconds : 0)) out->slowest = e;
      break;
    case TraceOutcome::kAbandoned: ++count.abandoned; break;
    case TraceOutcome::kRefused: {
      ++count.refused;
      const bool other = out->refused.size() >= kMostMoveKinds && !out->refused.contains(e.why);
      ++out->refused[other ? kOtherWord : e.why];
      break;
    }
  }
  if (is_promotion(e)) {
    ++out->promotions.published;
    out->promotions.lossy += e.how == "lossy";
    out->promotions.bytes += e.to_bytes;
  }
}

Status no_such_session(const std::string& path, uint64_t session, const std::set<uint64_t>& known) {
  std::string list;
  for (const uint64_t s : known) list += (list.empty() ? "" : ", ") + std::to_string(s);
  if (known.size() == kListedSessions) list += " ...";
  return not_found(path + " has no session " + std::to_string(session) +
                   (list.empty() ? " (it has no event)" : " (it has " + list + ")"));
}

}  // namespace

Result<TraceSurvey> survey_trace(const std::string& path, std::optional<uint64_t> session,
                                 const TraceProgress& progress) {
  auto reader = TraceReader::open(path);
  if (!reader.ok()) return reader.status();
  TraceSurvey out;
  out.path = path;
  out.header = reader->header();
  std::set<uint64_t> known;  // the first few sessions, for the message
  int64_t divisor = 0;
  int64_t latest_step = 0;
  bool finished = false;  // the last event let go of a page because its session ended
  TraceEvent e;
  for (;;) {
    const auto more = reader->next(&e);
    if (!more.ok()) return more.status();
    if (!*more) break;
    ++out.file_events;
    if (progress && reader->line() % kProgressLines == 0) progress(reader->bytes(), reader->file_bytes());
    if (known.size() < kListedSessions) known.insert(e.session);
    divisor = std::gcd(divisor, e.page_start);
    out.backward_steps += out.file_events > 1 && e.step < latest_step;
    latest_step = std::max(latest_step, e.step);
    e.step = latest_step;
    if (session && e.session != *session) continue;
    if (out.events++ == 0) out.first_step = e.step;
    out.last_step = e.step;
    finished = !e.to && e.why == kFinished;
    PanelSpan& panel = out.panels[{e.session, e.window}];
    if (panel.events++ == 0) panel.first_step = e.step;
    panel.last_step = e.step;
    panel.last_page_start = std::max(panel.last_page_start, e.page_start);
    count_move(e, &out);
  }
  if (session && out.events == 0) return no_such_session(path, *session, known);
  if (!finished) out.last_step = latest_step;  // of a session that holds its pages to the end of the trace
  if (reader->cut()) out.cut_line = reader->line();
  out.page_tokens = out.header.page_tokens;
  if (out.page_tokens == 0) out.page_tokens = divisor > 0 ? divisor : kLeastPageTokens;
  return out;
}

}  // namespace varve::cli
