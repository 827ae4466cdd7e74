#include "counters.hpp"

#include <atomic>

namespace octavo {
namespace {

std::atomic<uint64_t> allocations{0}, allocated_bytes{0}, programs{0}, threads{0};

void add(std::atomic<uint64_t>& counter, uint64_t count) {
  counter.fetch_add(count, std::memory_order_relaxed);
}

}  // namespace

Counters counters() {
  return {allocations.load(std::memory_order_relaxed), allocated_bytes.load(std::memory_order_relaxed),
          programs.load(std::memory_order_relaxed), threads.load(std::memory_order_relaxed)};
}

void count_allocation(size_t bytes) {
  add(allocations, 1);
  add(allocated_bytes, bytes);
}

void count_program() {
  add(programs, 1);
}

void count_thread() {
  add(threads, 1);
}

}  // namespace octavo
