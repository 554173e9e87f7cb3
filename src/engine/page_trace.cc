#include "engine/page_trace.h"

#include <utility>

namespace varve::engine {

void PageTrace::update(int64_t step, SessionId session, const char* why, const char* how, const char* gone) {
  std::vector<Pages>& known = sessions_[session];
  const std::vector<cache::ClassConfig>& classes = cache_.config().classes;
  known.resize(classes.size());
  for (size_t c = 0; c < classes.size(); ++c) {
    Transition t{.step = step, .session = session, .window = classes[c].window, .outcome = "published"};
    Pages now;
    for (const cache::BlockEntry& b : cache_.blocks(session, c)) {
      if (b.sealed) now[b.page] = {b.start, b.ref.tier};
    }
    for (const auto& [page, is] : now) {
      if (known[c].contains(page)) continue;
      t.page = page;
      t.page_start = is.start;
      t.from = "";
      t.to = cache::tier_name(is.tier);
      t.why = why;
      t.how = how;
      t.from_bytes = 0;
      t.to_bytes = cache_.pool(c, is.tier).slot_bytes;
      emit_(t);
    }
    for (const auto& [page, was] : known[c]) {
      if (now.contains(page)) continue;
      t.page = page;
      t.page_start = was.start;
      t.from = cache::tier_name(was.tier);
      t.to = "";
      t.why = gone;
      t.how = "release";
      t.from_bytes = cache_.pool(c, was.tier).slot_bytes;
      t.to_bytes = 0;
      emit_(t);
    }
    known[c] = std::move(now);
  }
  if (!cache_.contains(session)) sessions_.erase(session);
}

}  // namespace varve::engine
