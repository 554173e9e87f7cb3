// What should move: the features of a sequence's pages, and the queue that follows from the policy's wishes.

#include <algorithm>
#include <map>
#include <utility>

#include "cache/lifecycle/controller_impl.h"

namespace varve::cache {

std::vector<PageFeatures> Controller::Impl::features(SequenceId id, size_t cls, std::span<const BlockEntry> blocks,
                                                     int length, bool relieving) const {
  PageFeatures common;
  common.cls = cls;
  common.tokens = page_tokens(cls);
  for (size_t t = 0; t < kTiers; ++t) common.tier_bytes[t] = slot_bytes(cls, static_cast<Tier>(t));
  common.pressure = static_cast<double>(cache->allocated_bytes()) / static_cast<double>(cache->budget_bytes());
  common.relieving = relieving;

  const auto own = queues.find(id);
  std::map<PageId, Tier> promised;
  if (own != queues.end()) {
    for (const Waiting& w : own->second.waiting) {
      if (w.asked()) promised.emplace(w.page, w.to);
    }
  }
  std::vector<PageFeatures> out;
  out.reserve(blocks.size());
  for (const BlockEntry& b : blocks) {
    PageFeatures& f = out.emplace_back(common);
    f.start = b.start;
    f.tier = b.ref.tier;
    f.sealed = b.sealed;
    f.shared = b.shared;
    f.age_tokens = length - b.start - f.tokens;
    if (b.shared || b.converting) {
      const PageInfo page = *cache->page(b.page);
      if (b.shared) f.age_tokens = page.shortest_length - b.start - f.tokens;
      if (b.converting) f.tier = page.destination.tier, f.dwelling = true;
    }
    f.age_tokens = std::max(0, f.age_tokens);
    if (const auto it = promised.find(b.page); it != promised.end()) f.tier = it->second;
    if (own != queues.end()) {
      const Queue& queue = own->second;
      f.score = queue.scores[cls].score(b.page);
      f.marked = queue.marks.overlap({b.start, b.start + f.tokens});
      const auto move = queue.moves.find(b.page);
      f.dwelling |= move != queue.moves.end() && queue.clock - move->second.clock < options.dwell_tokens;
    }
    if (!b.shared) continue;
    for (const auto& [other, queue] : queues) {
      if (other == id || !cache->contains(other)) continue;
      f.score = std::max(f.score, queue.scores[cls].score(b.page));
      f.marked |= queue.marked_pages.contains(b.page);
    }
  }
  return out;
}

bool Controller::Impl::held_back(SequenceId id, const BlockEntry& block, Tier to) const {
  if (!block.shared || to <= Tier::kAnchor) return false;
  return std::any_of(queues.begin(), queues.end(), [&](const auto& entry) {
    return entry.first != id && entry.second.anchor_wishes.contains(block.page) && cache->contains(entry.first);
  });
}

void Controller::Impl::review(SequenceId id, Queue& queue, int length) {
  ++stats.reviews;
  queue.due = false;
  queue.observations.assign(queue.observations.size(), 0);
  queue.marked_pages.clear();
  queue.anchor_wishes.clear();

  std::deque<Waiting> waiting;
  std::map<PageId, Move> moves;
  std::map<PageId, Waiting> before;  // what stays here at the end is not wanted any more
  for (const Waiting& w : queue.waiting) {
    before.emplace(w.page, w);
    queued.erase(w.page);
  }
  for (size_t cls = 0; cls < cache->config().classes.size(); ++cls) {
    const std::vector<BlockEntry> blocks = cache->blocks(id, cls);
    queue.scores[cls].keep_only(blocks);
    const std::vector<PageFeatures> pages = features(id, cls, blocks, length, false);
    std::vector<Wish> wishes(pages.size(), Wish{Tier::kRecent, ""});
    policy->decide(pages, wishes);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const BlockEntry& block = blocks[i];
      const Wish& wish = wishes[i];
      if (const auto move = queue.moves.find(block.page); move != queue.moves.end()) moves.insert(*move);
      if (queue.marks.overlap({block.start, block.start + pages[i].tokens})) queue.marked_pages.insert(block.page);
      if (!block.sealed) continue;
      if (wish.tier == Tier::kAnchor) queue.anchor_wishes.insert(block.page);
      if (block.converting || queued.contains(block.page) || wish.tier == block.ref.tier) continue;
      if (held_back(id, block, wish.tier)) continue;
      Waiting w{cls, block.page, block.start, block.ref.tier, wish.tier, wish.why, pages[i].score};
      if (slot_bytes(cls, wish.tier) == 0) {
        refuse(id, w, plain_how(cls, w.from, w.to), Refusal::kTierUnused);
        continue;
      }
      if (const auto old = before.find(block.page); old != before.end()) {
        if (old->second.asked() && old->second.from == w.from && old->second.to == w.to) {
          w.why = old->second.why;
          w.ask = old->second.ask;
        } else if (old->second.asked()) {
          refinements.done(cls, block.page);
        }
        before.erase(old);
      }
      waiting.push_back(w);
      queued.insert(block.page);
    }
  }
  for (const auto& [page, w] : before) withdraw(w);
  std::stable_sort(waiting.begin(), waiting.end(),
                   [](const Waiting& a, const Waiting& b) { return a.start < b.start; });
  queue.waiting = std::move(waiting);
  queue.moves = std::move(moves);
}

}  // namespace varve::cache
