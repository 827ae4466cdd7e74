// Passes of sampling over a row of logits.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

OCTAVO_FN size_t chunk_size(size_t n, size_t begin) {
  return n - begin < kChunk ? n - begin : kChunk;
}

bool largest(const float* logits, size_t n, float* out) {
  const F32 infinity = f32_set1(kInfinity);
  F32 bad = f32_zero();  // 1 where a lane met NaN or +infinity, neither of which is less than infinity
  for (size_t begin = 0; begin < n; begin += kChunk) {
    const size_t size = chunk_size(n, begin);
    F32 most = f32_set1(-kInfinity);
    for (size_t i = 0; i < size; i += kLanes) {
      const size_t lanes = size - i < kLanes ? size - i : kLanes;
      const F32 x = f32_keep_first(load_columns(logits + begin, i, size), lanes, f32_set1(-kInfinity));
      bad = f32_select_less(x, infinity, bad, f32_set1(1.0f));
      most = f32_max(most, x);
    }
    out[begin / kChunk] = f32_reduce_max(most);
  }
  return f32_reduce_max(bad) == 0.0f;
}

void weights(const float* logits, size_t n, const float* chunks, float largest, float temperature, float least, float* out) {
  for (size_t begin = 0; begin < n; begin += kChunk) {
    const size_t size = chunk_size(n, begin);
    if (chunks[begin / kChunk] < least) {
      __builtin_memset(out + begin, 0, size * sizeof *out);
      continue;
    }
    for (size_t i = 0; i < size; i += kLanes) {
      const F32 x = load_columns(logits + begin, i, size);
      const F32 weight = f32_exp((x - f32_set1(largest)) / f32_set1(temperature));
      store_columns(out + begin, i, size, f32_select_less(x, f32_set1(least), f32_zero(), weight));
    }
  }
}

void sums(const float* weights, size_t n, double* out) {
  for (size_t begin = 0; begin < n; begin += kChunk) {
    const size_t size = chunk_size(n, begin);
    double lanes[kLanes] = {};
    for (size_t i = 0; i < size; i += kLanes) {
      float x[kLanes];
      f32_store(x, load_columns(weights + begin, i, size));
      for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(x[lane]);
    }
    for (size_t half = kLanes / 2; half > 0; half /= 2) {
      for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    out[begin / kChunk] = lanes[0];
  }
}

size_t count_above(const float* logits, size_t n, float bound) {
  F32 counts = f32_zero();
  for (size_t i = 0; i < n; i += kLanes) {
    const size_t lanes = n - i < kLanes ? n - i : kLanes;
    const F32 one = f32_select_less(f32_set1(bound), load_columns(logits, i, n), f32_set1(1.0f), f32_zero());
    counts = counts + f32_keep_first(one, lanes, f32_zero());
  }
  return static_cast<size_t>(f32_reduce_add(counts));
}

constexpr SamplingKernels sampling_kernels() {
  return {.largest = largest, .weights = weights, .sums = sums, .count_above = count_above};
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
