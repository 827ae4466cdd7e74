// Passes over logits, sampling and log-probabilities.
#include "sampling.hpp"

#include <algorithm>
#include <limits>

#include "check.hpp"

namespace octavo::test {
namespace {

constexpr size_t kRows = 6, kVocab = 1003;

std::vector<float> random_logits() {
  std::vector<float> logits = normals(kRows * kVocab, 111);
  for (float& logit : logits) logit *= 4.0f;
  return logits;
}

void check_passes(const Subject& subject, const std::vector<float>& logits) {
  const SamplingKernels& kernels = subject.kernels.sampling;
  constexpr size_t kChunks = (kVocab + kChunk - 1) / kChunk;
  std::vector<float> chunks(kChunks), weights(kVocab);
  std::vector<double> sums(kChunks);
  subject.report.hold(kernels.largest(logits.data(), kVocab, chunks.data()), "largest of finite logits");
  for (size_t c = 0; c < kChunks; ++c) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(c * kChunk);
    const auto end = logits.begin() + static_cast<std::ptrdiff_t>(std::min(kVocab, (c + 1) * kChunk));
    subject.report.hold(chunks[c] == *std::max_element(begin, end), "largest of a chunk");
  }
  const float largest = *std::max_element(chunks.begin(), chunks.end()), least = largest - 9.0f;
  kernels.weights(logits.data(), kVocab, chunks.data(), largest, 0.7f, least, weights.data());
  kernels.sums(weights.data(), kVocab, sums.data());
  fingerprint(subject, "sampling-weights", weights);
  double total = 0.0, sum_of_sums = 0.0;
  for (size_t i = 0; i < kVocab; ++i) {
    const double exact = std::exp((static_cast<double>(logits[i]) - static_cast<double>(largest)) / static_cast<double>(0.7f));
    const double wanted = logits[i] < least ? 0.0 : exact;
    subject.report.hold(std::fabs(static_cast<double>(weights[i]) - wanted) <= 2e-6 * wanted, "weight of a logit");
    total += static_cast<double>(weights[i]);
  }
  for (const double sum : sums) sum_of_sums += sum;
  subject.report.hold(std::fabs(sum_of_sums - total) <= 1e-12 * total, "sums of weights");
  const auto above = std::count_if(logits.begin(), logits.begin() + kVocab, [](float x) { return x > 1.5f; });
  subject.report.hold(kernels.count_above(logits.data(), kVocab, 1.5f) == static_cast<size_t>(above), "count above a bound");
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> spoiled(logits.begin(), logits.begin() + kVocab);
    spoiled[kVocab - 2] = bad;
    subject.report.hold(!kernels.largest(spoiled.data(), kVocab, chunks.data()), "largest where one is not finite");
  }
}

void check_sample(const Subject& subject, std::vector<float> logits) {
  const float temperature[kRows] = {0.0f, 1.0f, 0.6f, 1.0f, 1.3f, 1.0f};
  const int32_t top_k[kRows] = {0, 0, 20, 3, 0, 0}, index[kRows] = {0, 1, 2, 3, 4, 5};
  const float top_p[kRows] = {1.0f, 1.0f, 1.0f, 0.9f, 0.5f, 1.0f}, min_p[kRows] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.2f};
  const uint64_t seed[kRows] = {1, 2, 3, 4, 5, 6};
  std::vector<int32_t> ids(kRows);
  SamplingScratch scratch(subject.pool.num_threads());
  const SamplingRules rules{temperature, top_k, top_p, min_p, seed, index};
  sample(subject.kernels, subject.pool, {logits.data(), kRows, kVocab}, rules, ids.data(), scratch);
  fingerprint(subject, "sampled", ids);
  const auto greedy = std::max_element(logits.begin(), logits.begin() + kVocab) - logits.begin();
  subject.report.hold(ids[0] == greedy, "greedy sampling");
  for (size_t r = 0; r < kRows; ++r) {
    const float chosen = logits[r * kVocab + static_cast<size_t>(ids[r])];
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(r * kVocab);
    const auto larger = std::count_if(row, row + kVocab, [&](float x) { return x > chosen; });
    subject.report.hold(top_k[r] == 0 || larger < top_k[r], "top_k");
  }
  logits[3 * kVocab + 5] = std::numeric_limits<float>::quiet_NaN();
  sample(subject.kernels, subject.pool, {logits.data(), kRows, kVocab}, rules, ids.data(), scratch);
  subject.report.hold(ids[3] == -1 && ids[0] == greedy, "sampling of a row with NaN");
}

void check_logprobs(const Subject& subject, const std::vector<float>& logits) {
  constexpr size_t kTop = 5;
  const std::vector<int32_t> chosen = {0, 17, 500, 999, 1002, 3};
  std::vector<int32_t> top_ids(kRows * kTop), ranks(kRows);
  std::vector<float> top(kRows * kTop), own(kRows);
  SamplingScratch scratch(subject.pool.num_threads());
  logprobs(subject.kernels, subject.pool, {logits.data(), kRows, kVocab}, chosen.data(), kTop,
           {top_ids.data(), top.data(), own.data(), ranks.data()}, scratch);
  for (size_t r = 0; r < kRows; ++r) {
    const float* row = &logits[r * kVocab];
    double sum = 0.0;
    for (size_t i = 0; i < kVocab; ++i) sum += std::exp(static_cast<double>(row[i]));
    const auto right = [&](float logprob, int32_t id) {
      return std::fabs(static_cast<double>(logprob) - (static_cast<double>(row[id]) - std::log(sum))) <= 1e-5;
    };
    subject.report.hold(right(own[r], chosen[r]), "logprob of the chosen");
    for (size_t i = 0; i < kTop; ++i) {
      const auto larger = std::count_if(row, row + kVocab, [&](float x) { return x > row[top_ids[r * kTop + i]]; });
      subject.report.hold(right(top[r * kTop + i], top_ids[r * kTop + i]) && larger == static_cast<std::ptrdiff_t>(i), "top logprobs");
    }
    const auto larger = std::count_if(row, row + kVocab, [&](float x) { return x > row[chosen[r]]; });
    subject.report.hold(ranks[r] == larger + 1, "rank of the chosen");
  }
}

}  // namespace

void test_sampling(const Subject& subject) {
  const std::vector<float> logits = random_logits();
  check_passes(subject, logits);
  check_sample(subject, logits);
  check_logprobs(subject, logits);
}

}  // namespace octavo::test
