// A tile of quantized weights times rows, on registers as wide as a vector: the sums that linear.hpp states.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

template <int Zero>
OCTAVO_FN I32 start_at_zero_point(const Q8Group& x) {  // -Zero * sum(x), exactly
  if constexpr (Zero == 0 || (Zero == 128 && !kBiasedDot))
    return i32_zero();
  else if constexpr (Zero == 128)
    return i32_set1(x.biased);
  else if constexpr (Zero == 32)
    return i32_sra<2>(i32_set1(x.biased));
  else if constexpr (Zero == 16)
    return i32_sra<3>(i32_set1(x.biased));
  else if constexpr (Zero == 8)
    return i32_sra<4>(i32_set1(x.biased));
}

// -Zero * sum of half h of x, as a dot product of the two 16-bit sums with (-Zero, 0) or (0, -Zero).
template <int Zero>
OCTAVO_FN I32 start_half_at_zero_point(const Q8Group& x, size_t h) {
  if constexpr (Zero == 0) return i32_zero();
  int32_t sums;
  __builtin_memcpy(&sums, x.half_sum, 4);
  return dot_i16(i32_zero(), i32_set1(h == 0 ? (-Zero & 0xFFFF) : -Zero * 65536), i32_set1(sums));
}

// sum[i] += a group's share of row i, for N rows. Their dot products take turns, so that none waits for its own last one.
template <WeightType T, int N>
OCTAVO_FN void add_group(F32* sum, const Bytes (&u)[8], const Scales<T>& s, const char* x, size_t stride) {
  using F = Format<T>;
  constexpr size_t kVectors = 8 / F::kSubs;
#pragma GCC unroll 2
  for (size_t sub = 0; sub < F::kSubs; ++sub) {
    I32 acc[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      const Q8Group& group = *reinterpret_cast<const Q8Group*>(x + i * stride);
      acc[i] = F::kSubs == 1 ? start_at_zero_point<F::kSubs == 1 ? F::kZero : 0>(group) : start_half_at_zero_point<F::kZero>(group, sub);
    }
#pragma GCC unroll 8
    for (size_t j = sub * kVectors; j < (sub + 1) * kVectors; ++j)
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) {
        const Bytes codes = bytes_broadcast4(reinterpret_cast<const Q8Group*>(x + i * stride)->codes + 4 * j);
        acc[i] = F::kZero == 128 ? dot_biased(acc[i], u[j], codes) : dot_u7(acc[i], u[j], codes);
      }
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      const Q8Group& group = *reinterpret_cast<const Q8Group*>(x + i * stride);
      sum[i] = f32_fma(f32_from_i32(acc[i]), f32_mul(s.scale[sub], f32_set1(group.scale)), sum[i]);
      if constexpr (F::kAffine) {
        const float scaled_sum = F::kSubs == 1 ? group.scaled_sum : group.scale * static_cast<float>(group.half_sum[sub]);
        sum[i] = f32_fma(s.offset[sub], f32_set1(scaled_sum), sum[i]);
      }
    }
  }
}

template <WeightType T, int R>
void quantized_tile(const uint8_t* tile, const char* x, size_t stride, size_t columns, const Outliers& outliers, size_t row,
                    float (*sums)[kTile]) {
  F32 sum[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sum[r] = f32_zero();
  for_cells<T>(tile, columns / 32, [&](const uint8_t* head, const uint8_t* cell, size_t g) __attribute__((always_inline)) {
    prefetch_cell<T, R>(cell + kPrefetchAhead);
    Bytes u[8];
    load_codes<T>(cell, u);
    const Scales<T> s = load_scales<T>(head, cell);
    constexpr int kAtOnce = R < kRowsAtOnce ? R : R % kRowsAtOnce == 0 ? kRowsAtOnce : R / 2;
#pragma GCC unroll 16
    for (int r = 0; r < R; r += kAtOnce) add_group<T, kAtOnce>(sum + r, u, s, x + r * stride + g * sizeof(Q8Group), stride);
  });
  add_outliers<T>(tile, outliers, row, sum);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) f32_store(sums[r], sum[r]);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
