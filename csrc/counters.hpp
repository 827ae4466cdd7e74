// Counts of what is dear to make: large memory, programs, threads. Serving is to make none of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace octavo {

// Of this process, since its start; nothing is ever taken back off.
struct Counters {
  uint64_t allocations;      // of the memory that weights, KV, programs and the sampler work in
  uint64_t allocated_bytes;  // by these
  uint64_t programs;
  uint64_t threads;  // of pools
};
Counters counters();

void count_allocation(size_t bytes);
void count_program();
void count_thread();

// Storage of what a step writes anew and keeps from step to step: each time it grows is counted.
template <typename T>
struct CountingAllocator {
  using value_type = T;

  CountingAllocator() = default;
  template <typename Other>
  CountingAllocator(const CountingAllocator<Other>&) {}

  T* allocate(size_t count) {
    count_allocation(count * sizeof(T));
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* data, size_t count) { std::allocator<T>().deallocate(data, count); }
  bool operator==(const CountingAllocator&) const = default;
};

template <typename T>
using StepVector = std::vector<T, CountingAllocator<T>>;

}  // namespace octavo
