#include "pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

#include "counters.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr int kSpinsBeforeYield = 4096;
constexpr uint32_t kLoopsBetweenLooks = 16;  // a step of a small model runs some two hundred

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

void check_cpus(const std::vector<int>& cpus) {
  if (cpus.empty()) throw std::invalid_argument("cpus: at least one is needed");
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) throw std::invalid_argument("cpus: this process's affinity cannot be read");
  for (int cpu : cpus)
    if (cpu < -1 || cpu >= CPU_SETSIZE || (cpu >= 0 && !CPU_ISSET(cpu, &allowed)))
      throw std::invalid_argument("cpus: this process may not run on CPU " + std::to_string(cpu));
}

void pin(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
}

}  // namespace

ThreadPool::ThreadPool(std::vector<int> cpus) : cpus_(std::move(cpus)) {
  check_cpus(cpus_);
  for (size_t worker = 1; worker < cpus_.size(); ++worker) {
    threads_.emplace_back([this, worker] { work(worker); });
    count_thread();
    if (cpus_[worker] >= 0) pin(threads_.back(), cpus_[worker]);
  }
}

void ThreadPool::close() {
  std::lock_guard lock(caller_);
  closing_.store(true);
  signal_.fetch_add(1);
  signal_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ThreadPool::run(size_t count, Call call, void* context) {
  if (count > UINT32_MAX) throw std::length_error("a loop has at most 2^32 - 1 items");
  if (count == 0) return;
  std::lock_guard lock(caller_);
  if (count == 1 || threads_.empty()) {
    for (size_t item = 0; item < count; ++item) call(context, item, 0);
    return;
  }
  // All items of the last epoch are done, and claims_ is closed: whoever reads a part of the new loop before its epoch cannot claim.
  call_.store(call, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  count_.store(count, std::memory_order_release);
  done_.store(0, std::memory_order_release);
  ++epoch_;
  claims_.store(uint64_t{epoch_} << 32, std::memory_order_release);
  signal_.store(epoch_);  // sequentially consistent, as is the read of sleepers_: either we see the sleeper, or it sees the signal
  if (sleepers_.load() > 0) signal_.notify_all();

  if (epoch_ % kLoopsBetweenLooks == 0) leave_worker();
  claim_items(epoch_, 0);
  for (int spins = 1; done_.load(std::memory_order_acquire) < count; ++spins) {
    if (spins % kSpinsBeforeYield != 0)
      pause();
    else
      sched_yield();  // the worker that we wait for may want this CPU
  }
  claims_.store(uint64_t{epoch_} << 32 | UINT32_MAX);
}

void ThreadPool::leave_worker() {
  const int here = sched_getcpu();
  if (cpus_[0] < 0 || here == cpus_[0] || std::find(cpus_.begin() + 1, cpus_.end(), here) == cpus_.end()) return;
  cpu_set_t allowed, own;
  CPU_ZERO(&own);
  CPU_SET(cpus_[0], &own);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || !CPU_ISSET(cpus_[0], &allowed)) return;
  if (sched_setaffinity(0, sizeof own, &own) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}

void ThreadPool::claim_items(uint64_t epoch, size_t worker) {
  uint64_t claim = claims_.load(std::memory_order_acquire);
  while (claim >> 32 == epoch) {
    const Call call = call_.load(std::memory_order_acquire);
    void* const context = context_.load(std::memory_order_acquire);
    const size_t item = claim & UINT32_MAX;
    if (item >= count_.load(std::memory_order_acquire)) return;
    if (!claims_.compare_exchange_weak(claim, claim + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    call(context, item, worker);
    done_.fetch_add(1, std::memory_order_release);
    claim = claims_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(size_t worker) {
  uint32_t seen = 0;
  while (!closing_.load()) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    uint32_t signal = signal_.load(std::memory_order_acquire);
    for (int spins = 1; signal == seen; ++spins) {
      pause();
      signal = signal_.load(std::memory_order_acquire);
      if (spins % 64 == 0 && std::chrono::steady_clock::now() > until) break;
    }
    if (signal == seen) {
      sleepers_.fetch_add(1);
      signal_.wait(seen);
      sleepers_.fetch_sub(1);
      continue;
    }
    seen = signal;
    claim_items(claims_.load(std::memory_order_acquire) >> 32, worker);
  }
}

}  // namespace octavo
