#include "cache/page_table.h"

#include <utility>

namespace varve::cache {

PageId PageTable::add(Page page) {
  if (free_.empty()) {
    free_.insert(records_.size());
    records_.emplace_back();
  }
  const size_t i = *free_.begin();
  free_.erase(free_.begin());
  Record& record = records_[i];
  record.page = std::move(page);
  record.used = true;
  if (++record.generation == 0) ++record.generation;  // 0 would make id 0 valid
  return make_id(i);
}

Page* PageTable::find(PageId id) {
  const size_t i = static_cast<uint32_t>(id);
  return i < records_.size() && records_[i].used && make_id(i) == id ? &records_[i].page : nullptr;
}

const Page* PageTable::find(PageId id) const { return const_cast<PageTable*>(this)->find(id); }

void PageTable::remove(PageId id) {
  if (find(id) == nullptr) return;
  const size_t i = static_cast<uint32_t>(id);
  records_[i].used = false;
  free_.insert(i);
}

}  // namespace varve::cache
