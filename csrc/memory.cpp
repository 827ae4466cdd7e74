#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>

#include "counters.hpp"

namespace octavo {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kShared = 16 * kHugePage;  // of memory for parts; what nobody takes of it is never touched

size_t round_up(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace

Memory::Memory(size_t bytes) {
  if (bytes == 0) return;
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  // Anonymous pages come aligned to 4 KiB only: take one huge page more, and give back what lies outside.
  const bool huge = bytes >= kHugePage;
  const size_t size = round_up(bytes, 4096), taken = huge ? size + kHugePage : size;
  void* base = mmap(nullptr, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(base);
  bytes_ = size;
  count_allocation(size);
  if (huge) {
    const size_t skip = round_up(reinterpret_cast<uintptr_t>(data_), kHugePage) - reinterpret_cast<uintptr_t>(data_);
    if (skip > 0) munmap(data_, skip);
    data_ += skip;
    if (kHugePage > skip) munmap(data_ + size, kHugePage - skip);
    madvise(data_, size, MADV_HUGEPAGE);
  }
}

void Memory::touch(size_t offset, size_t count) {
  constexpr size_t kPage = 4096;
  const size_t end = std::min(bytes_, offset + count);
  for (size_t at = offset / kPage * kPage; at < end; at += kPage) __atomic_fetch_or(data_ + at, uint8_t{0}, __ATOMIC_RELAXED);
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

MemoryPart::MemoryPart(size_t bytes) {
  static std::mutex mutex;
  static std::weak_ptr<Memory> shared;
  static size_t taken = 0;
  const size_t size = round_up(bytes, 64);
  if (size >= kHugePage) {
    whole_ = std::make_shared<Memory>(size);
    data_ = whole_->data();
    return;
  }
  const std::lock_guard lock(mutex);
  whole_ = shared.lock();
  if (whole_ == nullptr || taken + size > kShared) {
    shared = whole_ = std::make_shared<Memory>(kShared);
    taken = 0;
  }
  data_ = whole_->data() + taken;
  taken += size;
}

}  // namespace octavo
