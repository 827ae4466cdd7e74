// Sampling and log-probabilities of rows of logits. The rule is stated in src/octavo/runner/sampling_reference.py.
#pragma once

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

// One token id a row; -1 where the largest logit is not a finite number.
void sample(const KernelTable& kernels, ThreadPool& pool, const Logits& logits, const SamplingRules& rules, int32_t* ids);

struct LogprobFacts {
  int32_t* top_ids;        // [rows, num] the likeliest, ties in order of id
  float* top_logprobs;     // [rows, num]
  float* chosen_logprobs;  // [rows]
  int32_t* ranks;          // [rows] of the chosen: 1 + how many have a larger logit
};

// chosen [rows] are ids of the vocabulary; num is at most its size. Rows with NaN or +infinity get NaN everywhere.
void logprobs(const KernelTable& kernels, ThreadPool& pool, const Logits& logits, const int32_t* chosen, size_t num,
              const LogprobFacts& facts);

}  // namespace octavo
