#include "machine.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "cpu.hpp"
#include "memory.hpp"
#include "pool.hpp"

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;
// Read in all, and at least per thread: far more than a last-level cache holds of it.
constexpr size_t kReadBytes = size_t{512} << 20;
constexpr size_t kLeastBytes = size_t{32} << 20;
constexpr size_t kReadStep = size_t{8} << 20;

// Each thread calls step(worker, n) for n = 0, 1, … until its share of the time is over; step returns what it did. Returns the largest
// sum of the threads' rates over kRounds rounds: other work on the machine can only lower a rate.
template <typename Step>
double best_rate(ThreadPool& pool, double seconds, Step step) {
  double best = 0.0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> rates(pool.num_threads(), 0.0);
    // As many items as threads, none of which ends before all have been claimed: each thread gets one.
    pool.parallel_for(pool.num_threads(), [&](size_t, size_t worker) {
      const auto start = Clock::now();
      double done = 0.0, elapsed = 0.0;
      for (size_t n = 0; elapsed < seconds / kRounds; ++n) {
        done += step(worker, n);
        elapsed = std::chrono::duration<double>(Clock::now() - start).count();
      }
      rates[worker] = done / elapsed;
    });
    double total = 0.0;
    for (const double rate : rates) total += rate;
    best = std::max(best, total);
  }
  return best;
}

double read_rate(const MachineKernels& kernels, ThreadPool& pool, double seconds) {
  const size_t share = std::max(kLeastBytes, kReadBytes / pool.num_threads() / kReadStep * kReadStep);
  Memory memory(share * pool.num_threads());
  std::memset(memory.data(), 1, memory.bytes());
  return best_rate(pool, seconds, [&](size_t worker, size_t n) {
    const uint8_t* part = memory.data() + worker * share + n * kReadStep % share;
    volatile int32_t sink = kernels.read(part, kReadStep);
    (void)sink;
    return static_cast<double>(kReadStep);
  });
}

}  // namespace

MachineRates measure_machine(const std::vector<int>& cpus, double seconds) {
  if (!(seconds > 0.0)) throw std::invalid_argument("seconds must be positive");
  const MachineKernels& kernels = kernels_for(supported_isas().front()).machine;
  // Entry 0 of a pool is its caller, which is not pinned: that the others are, and that no CPU is left, pins it well enough.
  ThreadPool pool(cpus);
  volatile uint8_t seed = 1;
  return {
      read_rate(kernels, pool, seconds),
      best_rate(pool, seconds, [&](size_t, size_t) { return kernels.int8(seed); }),
      best_rate(pool, seconds, [&](size_t, size_t) { return kernels.bf16(seed); }),
      best_rate(pool, seconds, [&](size_t, size_t) { return kernels.fp32(seed); }),
  };
}

}  // namespace octavo
