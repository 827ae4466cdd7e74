// Sampling and log-probabilities of rows of logits. The rule is stated in src/octavo/runner/sampling_reference.py.
#pragma once

#include <vector>

#include "counters.hpp"
#include "kernel_table.hpp"
#include "pool.hpp"

namespace octavo {

struct Logits {
  const float* data;  // [rows, vocab]
  size_t rows, vocab;
};

// Per row.
struct SamplingRules {
  const float* temperature;  // below 1e-5: the largest logit
  const int32_t* top_k;      // 0 or less: off
  const float* top_p;        // 1 or more: off
  const float* min_p;        // 0 or less: off
  const uint64_t* seed;
  const int32_t* index;  // of the token in the request's output
};

// A token that may be kept. Candidates fall in order of logit, equals with the lower id first.
struct Candidate {
  float logit;
  int32_t id;
  bool operator<(const Candidate& other) const { return logit != other.logit ? logit > other.logit : id < other.id; }
};

// What the workers of one pool reuse from row to row, each its own. It grows as rows need; reserve makes room for a vocabulary.
class SamplingScratch {
public:
  struct alignas(64) Worker {
    StepVector<float> chunks, sorted_chunks, weights;
    StepVector<double> sums, bins;
    StepVector<Candidate> candidates;
  };

  explicit SamplingScratch(size_t num_workers) : workers_(num_workers) {}
  void reserve(size_t vocab);
  Worker& worker(size_t number) { return workers_[number]; }
  size_t num_workers() const { return workers_.size(); }

private:
  std::vector<Worker> workers_;
};

// One token id a row; -1 where the largest logit is not a finite number.
void sample(const KernelTable& kernels, ThreadPool& pool, const Logits& logits, const SamplingRules& rules, int32_t* ids,
            SamplingScratch& scratch);

struct LogprobFacts {
  int32_t* top_ids;        // [rows, num] the likeliest, ties in order of id
  float* top_logprobs;     // [rows, num]
  float* chosen_logprobs;  // [rows]
  int32_t* ranks;          // [rows] of the chosen: 1 + how many have a larger logit
};

// chosen [rows] are ids of the vocabulary; num is at most its size. Rows with NaN or +infinity get NaN everywhere.
void logprobs(const KernelTable& kernels, ThreadPool& pool, const Logits& logits, const int32_t* chosen, size_t num,
              const LogprobFacts& facts, SamplingScratch& scratch);

}  // namespace octavo
