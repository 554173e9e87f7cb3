#include "base/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace varve {

AlignedBuffer::AlignedBuffer(size_t bytes) {
  if (bytes == 0) return;
  constexpr size_t kHuge = size_t{2} << 20;
  const size_t alignment = bytes >= kHuge ? kHuge : kCacheLine;
  void* p = nullptr;
  if (posix_memalign(&p, alignment, bytes) != 0) return;
  if (bytes >= kHuge) (void)madvise(p, bytes, MADV_HUGEPAGE);
  std::memset(p, 0, bytes);
  data_.reset(static_cast<uint8_t*>(p));
  size_ = bytes;
}

void AlignedBuffer::Free::operator()(uint8_t* p) const { std::free(p); }

}  // namespace varve
