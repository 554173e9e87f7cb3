#pragma once
// Logical page records. A block table names pages by PageId; the record says where the bytes are now.

#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "cache/cache.h"
#include "cache/pool.h"

namespace varve::cache {

struct Page {
  size_t cls = 0;
  int start = 0;
  PageRef ref;
  bool sealed = false;
  uint32_t requests = 0;    ///< sequences whose block table names it
  bool cached = false;      ///< the prefix cache owns it too
  bool converting = false;  ///< a conversion owns it too: the record outlives its last request
  PageRef destination;      ///< while converting

  bool owned() const { return requests != 0 || cached; }
  /// The reference that the page's owners, together, have on its slot; nothing when only a conversion is left.
  std::optional<Hold> mapping() const {
    if (requests != 0) return Hold::kMapping;
    return cached ? std::optional(Hold::kCached) : std::nullopt;
  }
};

class PageTable {
 public:
  /// Reuses the lowest free record; the id is new.
  PageId add(Page page);
  /// Null when the id is stale.
  Page* find(PageId id);
  const Page* find(PageId id) const;
  void remove(PageId id);

  size_t size() const { return records_.size() - free_.size(); }
  template <typename Fn>
  void each(Fn fn) const {
    for (size_t i = 0; i < records_.size(); ++i) {
      if (records_[i].used) fn(make_id(i), records_[i].page);
    }
  }

 private:
  struct Record {
    Page page;
    uint32_t generation = 0;
    bool used = false;
  };
  PageId make_id(size_t i) const { return static_cast<PageId>(records_[i].generation) << 32 | i; }

  std::vector<Record> records_;
  std::set<size_t> free_;
};

}  // namespace varve::cache
