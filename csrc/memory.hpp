// Large aligned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace octavo {

// Uninitialised bytes, 64-byte aligned; from 2 MiB on, aligned to and backed by huge pages where the system grants them.
// Pages are touched on first use only, and read as 0 until then. Throws std::bad_alloc.
class Memory {
public:
  Memory() = default;
  explicit Memory(size_t bytes);
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory();

  // Makes the pages of [offset, offset + count) present. What they hold stays as it is, also where another thread writes meanwhile: each
  // page has one of its bytes or'ed with 0, atomically. A page at a time is taken from the system, so nobody waits for more than one.
  void touch(size_t offset, size_t count);

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory that lies in huge pages though it is less than one: a part of a larger one, which lives as long as any of its parts. Reading a
// small model's weights one after the other, each in pages of 4 KiB of its own, a processor would look up a page every 64 lines, and none
// of its prefetchers goes past a page's end. Parts taken one after the other follow one another.
class MemoryPart {
public:
  MemoryPart() = default;
  explicit MemoryPart(size_t bytes);

  uint8_t* data() const { return data_; }

private:
  std::shared_ptr<Memory> whole_;
  uint8_t* data_ = nullptr;
};

}  // namespace octavo
