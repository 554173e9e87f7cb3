#include "cache/pool.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "cache/cache.h"

namespace varve::cache {
namespace {

constexpr size_t index(Hold why) { return static_cast<size_t>(why); }
constexpr std::array<const char*, kHolds> kHoldNames = {"mapping", "cached mapping", "reader", "conversion source",
                                                        "conversion destination"};

}  // namespace

bool Pool::Slot::idle() const {
  return std::all_of(holds.begin(), holds.end(), [](uint32_t n) { return n == 0; });
}

bool Pool::Slot::draining() const { return !idle() && !converting() && !cached() && holds[index(Hold::kMapping)] == 0; }

Pool::Pool(std::string name, size_t slot_bytes, size_t slab_bytes, Budget* budget, bool poison)
    : name_(std::move(name)),
      slot_bytes_(align_up(slot_bytes, kCacheLine)),
      slab_slots_(static_cast<uint32_t>(std::clamp<size_t>(slab_bytes / slot_bytes_, 1, 1u << 16))),
      budget_(budget),
      poison_(poison) {}

size_t Pool::growth_bytes(size_t slots) const {
  if (slots <= free_.size()) return 0;
  const size_t missing = slots - free_.size();
  if (missing > std::numeric_limits<size_t>::max() / slot_bytes_) return std::numeric_limits<size_t>::max();
  return missing * slot_bytes_;
}

Status Pool::grow(size_t slots, size_t limit) {
  while (free_.size() < slots) {
    // A full slab when the limit allows, else what still fits: a tight budget must not waste a slot.
    const size_t capacity = std::min<size_t>(slab_slots_, limit / slot_bytes_);
    Status status = capacity == 0 ? resource_exhausted(name_ + ": growth limit of " + std::to_string(limit) +
                                                       " bytes is less than a slot of " + std::to_string(slot_bytes_))
                                  : add_slab(static_cast<uint32_t>(capacity));
    if (!status.ok()) {
      give_back_empty();
      return status;
    }
    limit -= capacity * slot_bytes_;
  }
  return {};
}

Status Pool::add_slab(uint32_t capacity) {
  const size_t bytes = capacity * slot_bytes_;
  AlignedBuffer memory(bytes);
  if (memory.data() == nullptr) {
    return resource_exhausted(name_ + ": the system refused a slab of " + std::to_string(bytes) + " bytes; " +
                              std::to_string(budget_->used) + " of " + std::to_string(budget_->limit) +
                              " budget bytes are allocated");
  }
  if (poison_) std::memset(memory.data(), kPoison, bytes);
  size_t slab = 0;
  while (slab < slabs_.size() && slabs_[slab].capacity != 0) ++slab;
  if (slab == slabs_.size()) {
    slabs_.emplace_back();
    slots_.resize(slabs_.size() * slab_slots_);
  }
  slabs_[slab] = {std::move(memory), capacity, 0};
  for (uint32_t i = 0; i < capacity; ++i) free_.insert(static_cast<uint32_t>(slab) * slab_slots_ + i);
  total_ += capacity;
  budget_->used += bytes;
  return {};
}

void Pool::give_back(size_t slab) {
  const uint32_t first = static_cast<uint32_t>(slab) * slab_slots_;
  for (uint32_t i = 0; i < slabs_[slab].capacity; ++i) free_.erase(first + i);
  total_ -= slabs_[slab].capacity;
  budget_->used -= slabs_[slab].capacity * slot_bytes_;
  slabs_[slab] = {};
}

void Pool::give_back_empty() {
  for (size_t slab = 0; slab < slabs_.size(); ++slab) {
    if (slabs_[slab].capacity != 0 && slabs_[slab].used == 0) give_back(slab);
  }
}

uint32_t Pool::take(Hold why) {
  const uint32_t slot = *free_.begin();
  free_.erase(free_.begin());
  ++slabs_[slot / slab_slots_].used;
  change(slot, why, 1);
  return slot;
}

void Pool::hold(uint32_t slot, Hold why) { change(slot, why, 1); }

void Pool::drop(uint32_t slot, Hold why) {
  if (slot >= slots_.size() || count(slot, why) == 0) {
    ++faults_;
    return;
  }
  change(slot, why, -1);
  if (!slots_[slot].idle()) return;
  ++slots_[slot].generation;
  if (poison_) std::memset(data(slot), kPoison, slot_bytes_);
  free_.insert(slot);
  const size_t slab = slot / slab_slots_;
  if (--slabs_[slab].used == 0) give_back(slab);
}

void Pool::change(uint32_t slot, Hold why, int delta) {
  Slot& s = slots_[slot];
  converting_ -= s.converting();
  draining_ -= s.draining();
  cached_ -= s.cached();
  s.holds[index(why)] += static_cast<uint32_t>(delta);
  converting_ += s.converting();
  draining_ += s.draining();
  cached_ += s.cached();
}

bool Pool::valid(uint32_t slot, uint32_t generation) const {
  return slot < slots_.size() && slots_[slot].generation == generation && !slots_[slot].idle();
}

uint8_t* Pool::data(uint32_t slot) {
  return slabs_[slot / slab_slots_].memory.data() + (slot % slab_slots_) * slot_bytes_;
}

Status Pool::check(const std::vector<std::array<uint32_t, kHolds>>& expected) const {
  const auto fail = [&](const std::string& what) { return internal_error("pool " + name_ + ": " + what); };
  if (faults_ != 0) return fail(std::to_string(faults_) + " releases without a reference");
  size_t total = 0, idle = 0, cached = 0, converting = 0, draining = 0;
  for (size_t slab = 0; slab < slabs_.size(); ++slab) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < slab_slots_; ++i) {
      const uint32_t slot = static_cast<uint32_t>(slab) * slab_slots_ + i;
      const Slot& s = slots_[slot];
      const std::string label = "slot " + std::to_string(slot);
      const bool exists = i < slabs_[slab].capacity;
      if (free_.contains(slot) != (exists && s.idle())) return fail(label + " and the free list disagree");
      if (!exists && !s.idle()) return fail(label + " is held without memory");
      for (size_t h = 0; h < kHolds; ++h) {
        const uint32_t want = slot < expected.size() ? expected[slot][h] : 0;
        if (s.holds[h] != want) {
          return fail(label + " counts " + std::to_string(s.holds[h]) + " " + kHoldNames[h] + " references, found " +
                      std::to_string(want));
        }
      }
      total += exists;
      idle += exists && s.idle();
      used += !s.idle();
      cached += s.cached();
      converting += s.converting();
      draining += s.draining();
    }
    if (used != slabs_[slab].used) return fail("slab " + std::to_string(slab) + " miscounts its used slots");
    if (slabs_[slab].capacity != 0 && used == 0) return fail("slab " + std::to_string(slab) + " is empty but kept");
  }
  if (expected.size() > slots_.size()) return fail("a reference names a slot that never existed");
  if (total != total_ || idle != free_.size() || cached != cached_ || converting != converting_ ||
      draining != draining_) {
    return fail("counters disagree: total " + std::to_string(total_) + "/" + std::to_string(total) + ", free " +
                std::to_string(free_.size()) + "/" + std::to_string(idle) + ", cached " + std::to_string(cached_) +
                "/" + std::to_string(cached) + ", converting " + std::to_string(converting_) + "/" +
                std::to_string(converting) + ", draining " + std::to_string(draining_) + "/" +
                std::to_string(draining));
  }
  if (free() + live() + this->cached() + this->converting() != total_) {
    return fail("free + live + cached + converting is not total");
  }
  return {};
}

}  // namespace varve::cache
