#include "engine/page_trace.h"

#include <utility>

namespace varve::engine {

void PageTrace::moved(const Transition& t, cache::PageId page, cache::Tier to) {
  if (t.outcome == "published") tiers_[page] = to;
  emit_(t);
}

void PageTrace::update(int64_t step, SessionId session, const char* why, const char* how, const char* gone) {
  std::vector<std::map<cache::PageId, int>>& known = sessions_[session];
  const std::vector<cache::ClassConfig>& classes = cache_.config().classes;
  known.resize(classes.size());
  for (size_t c = 0; c < classes.size(); ++c) {
    Transition t{.step = step, .session = session, .window = classes[c].window, .outcome = "published"};
    std::map<cache::PageId, int> now;
    for (const cache::BlockEntry& b : cache_.blocks(session, c)) {
      if (!b.sealed) continue;
      now[b.page] = b.start;
      tiers_[b.page] = b.ref.tier;
    }
    for (const auto& [page, start] : now) {
      if (known[c].contains(page)) continue;
      t.page = page;
      t.page_start = start;
      t.from = "";
      t.to = cache::tier_name(tiers_[page]);
      t.why = why;
      t.how = how;
      t.from_bytes = 0;
      t.to_bytes = cache_.pool(c, tiers_[page]).slot_bytes;
      emit_(t);
    }
    for (const auto& [page, start] : known[c]) {
      if (now.contains(page)) continue;
      const cache::Tier was = tiers_[page];
      t.page = page;
      t.page_start = start;
      t.from = cache::tier_name(was);
      t.to = "";
      t.why = gone;
      t.how = "release";
      t.from_bytes = cache_.pool(c, was).slot_bytes;
      t.to_bytes = 0;
      emit_(t);
      if (!cache_.page(page)) tiers_.erase(page);
    }
    known[c] = std::move(now);
  }
  if (!cache_.contains(session)) sessions_.erase(session);
}

}  // namespace varve::engine
