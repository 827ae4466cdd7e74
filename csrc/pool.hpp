// A pool of pinned threads that share one loop at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace octavo {

// The caller of parallel_for is worker 0; the other workers are threads created once and pinned to their CPU.
//
// A loop is announced by one word that holds (epoch, next item). A worker claims an item by a compare-and-swap of that word, so a claim
// can only succeed in the epoch whose loop the worker has read. The loop ends when all its items are done, not when all workers have
// come by: a worker that the system has put aside delays nobody unless it holds an item.
//
// The system may run the caller on a worker's CPU, and leave it there while its own has any other thread, be it the least important one:
// the two then share one CPU for a step or several. So now and then a loop looks where it is, and moves.
//
// Workers spin for about 50 µs after their last item (ops of a step follow one another within a few µs), then sleep.
class ThreadPool {
public:
  // One worker a CPU id, in order; -1 leaves it unpinned. Entry 0 is the caller's, which is not pinned, only moved there from another's.
  // Throws std::invalid_argument on an empty list, an id below -1, or a CPU that this process may not use.
  explicit ThreadPool(std::vector<int> cpus);
  ~ThreadPool() { close(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t num_threads() const { return cpus_.size(); }
  // Joins the workers; idempotent. Later loops run on the caller alone.
  void close();

  // Calls fn(item, worker) for each item in [0, count), in any order and by any worker; returns when all are done.
  // fn must not throw, nor use this pool. Loops from several threads run one after another.
  template <typename Fn>
  void parallel_for(size_t count, Fn&& fn) {
    using Body = std::remove_reference_t<Fn>;
    run(
        count, [](void* context, size_t item, size_t worker) { (*static_cast<Body*>(context))(item, worker); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // Splits [0, count) into ranges of about equal length, several a thread and each of at least `least` elements: fn(begin, end).
  template <typename Fn>
  void parallel_ranges(size_t count, size_t least, Fn&& fn) {
    const size_t wanted = num_threads() == 1 ? 1 : 4 * num_threads();
    const size_t length = count / wanted + 1 > least ? (count + wanted - 1) / wanted : least;
    if (count == 0) return;
    parallel_for((count + length - 1) / length, [&](size_t item, size_t) {
      const size_t begin = item * length, end = begin + length;
      fn(begin, end < count ? end : count);
    });
  }

private:
  using Call = void (*)(void*, size_t item, size_t worker);

  void run(size_t count, Call call, void* context);
  void work(size_t worker);
  void claim_items(uint64_t epoch, size_t worker);
  void leave_worker();

  std::vector<int> cpus_;
  std::vector<std::thread> threads_;
  std::mutex caller_;

  // The loop in progress, written while claims_ is closed.
  std::atomic<Call> call_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<uint64_t> count_{0};
  uint32_t epoch_ = 0;

  alignas(64) std::atomic<uint64_t> claims_{UINT32_MAX};  // epoch << 32 | next item; UINT32_MAX: closed
  alignas(64) std::atomic<uint64_t> done_{0};             // items done in this epoch
  alignas(64) std::atomic<uint32_t> signal_{0};           // the epoch again, for sleepers; changes at close too
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> closing_{false};
};

}  // namespace octavo
