#include "attention/share.h"

#include <algorithm>
#include <vector>

namespace varve::attention {
namespace {

using format::kTileTokens;

/// Rows that one item of every KV head serves together.
struct Group {
  int cut = 0;  ///< absolute
  int shared_end = 0;
  std::vector<size_t> rows;  ///< the first leads
};

class Joiner {
 public:
  Joiner(std::span<const SequenceState> sequences, Schedule* schedule)
      : sequences_(sequences), schedule_(*schedule), max_rows_(std::max(1, kMaxJointHeads / schedule->shape.group)) {
    for (size_t u = 0; u < schedule_.units.size(); ++u) {
      if (schedule_.units[u].decode && schedule_.units[u].kv_head == 0) rows_.push_back(static_cast<int>(u));
    }
    for (const int row : rows_)
      taken_.emplace_back(static_cast<size_t>(schedule_.units[static_cast<size_t>(row)].cuts));
  }

  void run() {
    std::erase_if(schedule_.items,
                  [&](const Item& item) { return schedule_.units[static_cast<size_t>(item.unit)].decode; });
    for (size_t leader = 0; leader < rows_.size(); ++leader) {
      std::vector<Group> groups;
      const Unit& unit = row(leader);
      for (int cut = unit.first_cut; cut < unit.first_cut + unit.cuts; ++cut) {
        if (!taken(leader, cut)) groups.push_back(gather(leader, cut));
      }
      for (int head = 0; head < schedule_.shape.kv_heads; ++head) emit(groups, head);
    }
  }

 private:
  // A row's units, one for each KV head, are neighbours in the schedule.
  const Unit& row(size_t r) const { return schedule_.units[static_cast<size_t>(rows_[r])]; }
  const SequenceState& state(size_t r) const { return sequences_[static_cast<size_t>(row(r).sequence)]; }
  int position(size_t r) const { return state(r).view.past + row(r).first_row; }
  std::vector<bool>::reference taken(size_t r, int cut) {
    return taken_[r][static_cast<size_t>(cut - row(r).first_cut)];
  }

  /// Row r attends to the whole cut from its first position on, and nobody else serves it.
  bool open(size_t r, int cut) {
    return row(r).selection < 0 && cut >= row(r).first_cut && cut < row(r).first_cut + row(r).cuts && !taken(r, cut) &&
           first_key(position(r), schedule_.shape.window) <= cut * kDecodeCutTokens;
  }

  /// The rows that have the longest run of tiles in common with the leader.
  Group gather(size_t leader, int cut) {
    const int begin = cut * kDecodeCutTokens;
    Group group{.cut = cut, .shared_end = begin, .rows = {leader}};
    if (open(leader, cut)) {
      for (size_t r = leader + 1; r < rows_.size(); ++r) {
        if (!open(r, cut)) continue;
        const int until = shared_until(state(leader), state(r), begin, begin + kDecodeCutTokens);
        if (until > group.shared_end) {
          group.shared_end = until;
          group.rows.resize(1);
        }
        if (until == group.shared_end && until > begin && static_cast<int>(group.rows.size()) < max_rows_) {
          group.rows.push_back(r);
        }
      }
    }
    if (group.rows.size() == 1) group.shared_end = begin;
    for (const size_t r : group.rows) taken(r, cut) = true;
    return group;
  }

  void emit(const std::vector<Group>& groups, int head) {
    const Group* before = nullptr;
    int first = 0;
    for (const Group& group : groups) {
      const int leader = rows_[group.rows.front()] + head;
      Item item{.unit = leader, .cut = group.cut - row(group.rows.front()).first_cut};
      if (group.rows.size() > 1) {
        // Cuts with the same units share the list: a thread that goes from one to the next keeps its queries.
        if (before == nullptr || before->rows != group.rows) {
          first = static_cast<int>(schedule_.joint_units.size());
          for (const size_t r : group.rows) schedule_.joint_units.push_back(rows_[r] + head);
        }
        before = &group;
        item.units = static_cast<int>(group.rows.size());
        item.first_unit = first;
        item.shared_end = group.shared_end;
      }
      schedule_.items.push_back(item);
    }
  }

  std::span<const SequenceState> sequences_;
  Schedule& schedule_;
  const int max_rows_;
  std::vector<int> rows_;                 ///< first unit of each row on the decode path
  std::vector<std::vector<bool>> taken_;  ///< [row][cut of it]
};

}  // namespace

int shared_until(const SequenceState& a, const SequenceState& b, int begin, int end) {
  // Both kinds of layers: rows from a tail's start on are in the strip, or in a page that is being written.
  end = std::min({end, a.tail_start, b.tail_start});
  if (end <= begin || &a == &b) return std::max(begin, end);
  const std::vector<PageView>& mine = a.view.pages;
  const std::vector<PageView>& theirs = b.view.pages;
  const int page_tokens = mine.front().layout->page_tokens;
  if (begin < mine.front().start || begin < theirs.front().start) return begin;
  for (int at = begin; at < end; at = (at / page_tokens + 1) * page_tokens) {
    const PageView& x = mine[static_cast<size_t>((at - mine.front().start) / page_tokens)];
    const PageView& y = theirs[static_cast<size_t>((at - theirs.front().start) / page_tokens)];
    if (x.slot != y.slot || x.layout != y.layout) return at;
  }
  return end;
}

void join_items(std::span<const SequenceState> sequences, Schedule* schedule) {
  Joiner(sequences, schedule).run();
  ReadPlan& reads = schedule->reads;
  for (const Unit& unit : schedule->units) {
    if (unit.decode) reads.tiles_requested += static_cast<size_t>(unit.tiles);
  }
  reads.tiles_read = reads.tiles_requested;
  for (const Item& item : schedule->items) {
    if (item.units == 1) continue;
    ++reads.shared_items;
    const Unit& unit = schedule->units[static_cast<size_t>(item.unit)];
    const int shared = (item.shared_end - (unit.first_cut + item.cut) * unit.cut_tokens) / kTileTokens;
    reads.tiles_read -= static_cast<size_t>(item.units - 1) * static_cast<size_t>(shared);
  }
}

}  // namespace varve::attention
