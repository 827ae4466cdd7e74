#include "sampling.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace octavo {
namespace {

constexpr float kGreedyBelow = 1e-5f;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// One row, and the passes over it.
struct Row {
  const SamplingKernels& kernels;
  const float* logits;
  size_t vocab;
  SamplingScratch::Worker& scratch;

  size_t num_chunks() const { return (vocab + kChunk - 1) / kChunk; }
  size_t chunk_end(size_t chunk) const { return std::min(vocab, (chunk + 1) * kChunk); }
};

// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") with key = seed and counter = (index, 0, 0, 0);
// 53 bits of its first two words make a double in [0, 1).
double uniform(uint64_t seed, uint32_t index) {
  uint32_t counter[4] = {index, 0, 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    std::copy(next, next + 4, counter);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const uint64_t bits = (uint64_t{counter[0]} >> 5 << 26) + (counter[1] >> 6);
  return static_cast<double>(bits) / 9007199254740992.0;  // 2^53
}

// Fills the scratch's chunks; false if the row holds NaN or +infinity.
bool find_chunks(const Row& row) {
  row.scratch.chunks.resize(row.num_chunks());
  return row.kernels.largest(row.logits, row.vocab, row.scratch.chunks.data());
}

// The first token whose logit is the row's largest.
int32_t argmax(const Row& row, float largest) {
  const size_t chunk =
      static_cast<size_t>(std::find(row.scratch.chunks.begin(), row.scratch.chunks.end(), largest) - row.scratch.chunks.begin());
  return static_cast<int32_t>(std::find(row.logits + chunk * kChunk, row.logits + row.vocab, largest) - row.logits);
}

// A bound that at least k logits reach: the k-th largest of the chunks' maxima, if there are as many chunks.
float reached_by(const Row& row, size_t k) {
  if (k > row.scratch.chunks.size()) return kLowest;
  row.scratch.sorted_chunks = row.scratch.chunks;
  const auto kth = row.scratch.sorted_chunks.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(row.scratch.sorted_chunks.begin(), kth, row.scratch.sorted_chunks.end(), std::greater<>());
  return *kth;
}

// All tokens with a logit of at least bound, in order of id.
void collect(const Row& row, float bound) {
  row.scratch.candidates.clear();
  for (size_t chunk = 0; chunk < row.num_chunks(); ++chunk) {
    if (row.scratch.chunks[chunk] < bound) continue;
    for (size_t i = chunk * kChunk; i < row.chunk_end(chunk); ++i) {
      if (row.logits[i] >= bound) row.scratch.candidates.push_back({row.logits[i], static_cast<int32_t>(i)});
    }
  }
}

// The last token, in falling order, that a row keeps; itself and all before it are kept.
Candidate least_of_min_p(float largest, float temperature, float min_p) {
  if (!(min_p > 0.0f)) return {kLowest, std::numeric_limits<int32_t>::max()};
  const double bound = static_cast<double>(largest) + static_cast<double>(temperature) * std::log(static_cast<double>(min_p));
  float least = static_cast<float>(std::min(bound, static_cast<double>(largest)));
  if (static_cast<double>(least) < bound) least = std::nextafter(least, largest);
  return {least, std::numeric_limits<int32_t>::max()};
}

Candidate least_of_top_k(const Row& row, size_t k, Candidate least) {
  collect(row, std::max(reached_by(row, k), least.logit));
  auto& kept = row.scratch.candidates;
  if (kept.size() < k) return least;
  std::nth_element(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(k - 1), kept.end());
  return kept[k - 1];
}

// Fills the scratch's weights and sums with what is kept; returns its mass.
double weigh(const Row& row, float largest, float temperature, Candidate least) {
  row.scratch.weights.resize(row.vocab);
  row.scratch.sums.resize(row.num_chunks());
  float* weights = row.scratch.weights.data();
  row.kernels.weights(row.logits, row.vocab, row.scratch.chunks.data(), largest, temperature, least.logit, weights);
  for (size_t i = static_cast<size_t>(least.id); i < row.vocab; ++i) {
    if (row.logits[i] == least.logit && i > static_cast<size_t>(least.id)) weights[i] = 0.0f;
  }
  row.kernels.sums(weights, row.vocab, row.scratch.sums.data());
  double mass = 0.0;
  for (const double sum : row.scratch.sums) mass += sum;
  return mass;
}

// Of candidates in falling order the first up to which they weigh, with what came before, at least target: found by halving.
Candidate reach(const Row& row, double before, double target) {
  auto begin = row.scratch.candidates.begin(), end = row.scratch.candidates.end();
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end);
    double upper = 0.0;
    for (auto it = begin; it != middle; ++it) upper += static_cast<double>(row.scratch.weights[static_cast<size_t>(it->id)]);
    if (before + upper >= target) {
      end = middle;
    } else {
      before += upper;
      begin = middle;
    }
  }
  return *begin;
}

// A histogram of weights over (largest - logit) / temperature, which is below 87.4 where a weight is not 0.
struct Bins {
  static constexpr float kPerUnit = 32.0f;
  static constexpr float kLast = 2799.0f;
  static constexpr size_t kCount = 2800;
  float largest, scale;

  size_t of(float logit) const { return static_cast<size_t>(static_cast<int32_t>(std::min(kLast, (largest - logit) * scale))); }
};

// The last of the smallest set in falling order whose mass reaches top_p of the whole: first the bin that holds it, then the token.
// All tokens below a share of (1 - top_p) / vocab each weigh less, together, than what the set may leave out: chunks without heavier ones
// are not looked at.
Candidate least_of_top_p(const Row& row, float largest, float temperature, double mass, double top_p) {
  const Bins bins{largest, Bins::kPerUnit / temperature};
  const double bound = (1.0 - top_p) * mass / static_cast<double>(row.vocab), target = top_p * mass;
  const auto for_heavy_tokens = [&](auto fn) {
    for (size_t chunk = 0; chunk < row.num_chunks(); ++chunk) {
      if (row.scratch.sums[chunk] == 0.0 || row.scratch.sums[chunk] < bound) continue;
      for (size_t i = chunk * kChunk; i < row.chunk_end(chunk); ++i) fn(i);
    }
  };
  row.scratch.bins.assign(Bins::kCount, 0.0);
  for_heavy_tokens([&](size_t i) { row.scratch.bins[bins.of(row.logits[i])] += static_cast<double>(row.scratch.weights[i]); });
  size_t bin = 0;
  double before = 0.0, running = 0.0;
  for (size_t b = 0; b < row.scratch.bins.size() && running < target; ++b) {
    if (row.scratch.bins[b] == 0.0) continue;
    bin = b;
    before = running;
    running += row.scratch.bins[b];
  }
  row.scratch.candidates.clear();
  for_heavy_tokens([&](size_t i) {
    if (bins.of(row.logits[i]) == bin && row.scratch.weights[i] > 0.0f)
      row.scratch.candidates.push_back({row.logits[i], static_cast<int32_t>(i)});
  });
  return reach(row, before, target);
}

// In one chunk, the first token whose running sum exceeds target; the last with a weight if rounding leaves none.
int32_t draw_within(const Row& row, size_t chunk, double running, double target) {
  size_t last = 0;
  for (size_t i = chunk * kChunk; i < row.chunk_end(chunk); ++i) {
    if (row.scratch.weights[i] == 0.0f) continue;
    last = i;
    running += static_cast<double>(row.scratch.weights[i]);
    if (running > target) break;
  }
  return static_cast<int32_t>(last);
}

// The first token, in order of id, whose running sum of weights exceeds target.
int32_t draw(const Row& row, double target) {
  double before = 0.0;
  size_t last = 0;
  for (size_t chunk = 0; chunk < row.num_chunks(); ++chunk) {
    if (row.scratch.sums[chunk] == 0.0) continue;
    if (before + row.scratch.sums[chunk] > target) return draw_within(row, chunk, before, target);
    before += row.scratch.sums[chunk];
    last = chunk;
  }
  return draw_within(row, last, before, std::numeric_limits<double>::infinity());
}

int32_t sample_row(const Row& row, const SamplingRules& rules, size_t r) {
  if (!find_chunks(row)) return -1;
  const float largest = *std::max_element(row.scratch.chunks.begin(), row.scratch.chunks.end());
  if (largest == kLowest) return -1;
  const float temperature = rules.temperature[r];
  if (temperature < kGreedyBelow) return argmax(row, largest);
  Candidate least = least_of_min_p(largest, temperature, rules.min_p[r]);
  if (rules.top_k[r] > 0 && static_cast<size_t>(rules.top_k[r]) < row.vocab) {
    least = least_of_top_k(row, static_cast<size_t>(rules.top_k[r]), least);
  }
  double mass = weigh(row, largest, temperature, least);
  if (rules.top_p[r] < 1.0f) {
    least = least_of_top_p(row, largest, temperature, mass, std::max(0.0, static_cast<double>(rules.top_p[r])));
    mass = weigh(row, largest, temperature, least);
  }
  return draw(row, uniform(rules.seed[r], static_cast<uint32_t>(rules.index[r])) * mass);
}

// The num likeliest, in order.
void find_top(const Row& row, size_t num) {
  collect(row, num == 0 ? std::numeric_limits<float>::infinity() : reached_by(row, num));
  auto& top = row.scratch.candidates;
  std::partial_sort(top.begin(), top.begin() + static_cast<std::ptrdiff_t>(num), top.end());
}

void logprobs_row(const Row& row, size_t r, int32_t chosen, size_t num, const LogprobFacts& facts) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const bool good = find_chunks(row);
  const float largest = good ? *std::max_element(row.scratch.chunks.begin(), row.scratch.chunks.end()) : kNaN;
  const double log_sum = good ? std::log(weigh(row, largest, 1.0f, {kLowest, std::numeric_limits<int32_t>::max()})) : 0.0;
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - static_cast<double>(largest) - log_sum); };
  const float picked = row.logits[chosen];
  facts.chosen_logprobs[r] = logprob(picked);
  facts.ranks[r] = static_cast<int32_t>(1 + row.kernels.count_above(row.logits, row.vocab, picked));
  if (good) find_top(row, num);
  for (size_t i = 0; i < num; ++i) {
    facts.top_ids[r * num + i] = good ? row.scratch.candidates[i].id : static_cast<int32_t>(i);
    facts.top_logprobs[r * num + i] = good ? logprob(row.scratch.candidates[i].logit) : kNaN;
  }
}

Row row_of(const KernelTable& kernels, const Logits& logits, size_t r, SamplingScratch::Worker& scratch) {
  return {kernels.sampling, logits.data + r * logits.vocab, logits.vocab, scratch};
}

}  // namespace

void SamplingScratch::reserve(size_t vocab) {
  const size_t chunks = (vocab + kChunk - 1) / kChunk;
  for (Worker& worker : workers_) {
    worker.chunks.reserve(chunks);
    worker.sorted_chunks.reserve(chunks);
    worker.weights.reserve(vocab);
    worker.sums.reserve(chunks);
    worker.bins.reserve(Bins::kCount);
    worker.candidates.reserve(vocab);
  }
}

void sample(const KernelTable& kernels, ThreadPool& pool, const Logits& logits, const SamplingRules& rules, int32_t* ids,
            SamplingScratch& scratch) {
  pool.parallel_for(logits.rows,
                    [&](size_t r, size_t worker) { ids[r] = sample_row(row_of(kernels, logits, r, scratch.worker(worker)), rules, r); });
}

void logprobs(const KernelTable& kernels, ThreadPool& pool, const Logits& logits, const int32_t* chosen, size_t num,
              const LogprobFacts& facts, SamplingScratch& scratch) {
  pool.parallel_for(logits.rows, [&](size_t r, size_t worker) {
    logprobs_row(row_of(kernels, logits, r, scratch.worker(worker)), r, chosen[r], num, facts);
  });
}

}  // namespace octavo
