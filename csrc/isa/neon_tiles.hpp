// A tile of quantized weights times rows, on 128-bit registers: the sums that linear.hpp states.
//
// A cell goes by in quarters, of 4 outputs each: 8 registers hold a quarter's codes, and a row's 32 activations lie in 2. Its integer sum
// is exact whichever way it is taken, so bits do not tell which unit of Arm did it:
//   I8MM      usmmla: 2 outputs × 8 inputs meet 8 inputs × 2 rows, of codes zipped to 8 inputs an output; a row alone takes usdot
//   DOTPROD   sdot by element: 4 inputs of 4 outputs meet 4 activations, one element of a register
//   plain     products of 16 bits (smull, smlal), as many added up as 16 bits surely hold, then pairs of them to 32 bits (sadalp)
// The latter two take codes as signed: those of 8 bits less 128, for which their zero point of 128 is 0.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr bool kUnsignedCodes = true;
#else
constexpr bool kUnsignedCodes = false;
#endif

// 4 of the 16 lanes of Bytes; of a mask or a table, whose quarters are alike, the first is taken.
struct Quarter {
  uint8x16_t v;
};
OCTAVO_FN void load_vector(const uint8_t* p, Quarter& out) { out.v = vld1q_u8(p); }
OCTAVO_FN Quarter bytes_and(Quarter a, Bytes mask) { return {vandq_u8(a.v, mask.q[0])}; }
OCTAVO_FN Quarter bytes_or_and(Quarter a, Quarter b, Bytes mask) { return {vorrq_u8(a.v, vandq_u8(b.v, mask.q[0]))}; }
template <int N>
OCTAVO_FN Quarter bytes_shift(Quarter a) {
  return {shift_<N>(a.v)};
}
OCTAVO_FN Quarter bytes_lookup(Bytes table, Quarter index) { return {vqtbl1q_u8(table.q[0], index.v)}; }
OCTAVO_FN Quarter high_nibbles(Quarter a) { return {vshrq_n_u8(a.v, 4)}; }

OCTAVO_FN uint8x8_t load_bytes4(const uint8_t* p) {
  uint32_t four;
  __builtin_memcpy(&four, p, 4);
  return vreinterpret_u8_u32(vdup_n_u32(four));
}
// The first four bytes.
OCTAVO_FN float32x4_t bytes_to_floats(uint8x8_t bytes, bool is_signed) {
  if (is_signed) return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(bytes)))));
  return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
}

// As load_scales, of outputs 4 quarter … 4 quarter + 3.
template <WeightType T>
struct QuarterScales {
  float32x4_t scale[Format<T>::kSubs], offset[Format<T>::kSubs];
};
template <WeightType T>
OCTAVO_FN QuarterScales<T> load_quarter_scales(const uint8_t* head, const uint8_t* cell, size_t quarter) {
  using F = Format<T>;
  QuarterScales<T> s;
  const uint8_t* p = cell + kCodeBytes<T>;
  const auto halves = [&](const uint8_t* at) { return f16_load4(reinterpret_cast<const uint16_t*>(at) + 4 * quarter); };
  if constexpr (!F::kSuper) {
    s.scale[0] = halves(p);
    if constexpr (F::kAffine) s.offset[0] = halves(p + 2 * kTile);
  } else {
    p += 4 * quarter;
    const float32x4_t d = halves(head);
    const auto subs = [&](size_t i) { return load_bytes4(p + i * kTile); };
    for (size_t i = 0; i < F::kSubs; ++i) {
      const uint8x8_t scale = F::kPairedScales ? vand_u8(subs(i), vdup_n_u8(15)) : subs(i);
      s.scale[i] = vmulq_f32(d, bytes_to_floats(scale, F::kSignedScales));
    }
    if constexpr (F::kAffine) {
      const float32x4_t m = halves(head + 2 * kTile);
      for (size_t i = 0; i < F::kSubs; ++i)
        s.offset[i] = vmulq_f32(m, bytes_to_floats(F::kPairedScales ? vshr_n_u8(subs(i), 4) : subs(F::kSubs + i), false));
    }
  }
  return s;
}

// -zero * sum of part ``sub`` of x.
template <WeightType T>
OCTAVO_FN int32_t zero_point(const Q8Group& x, size_t sub) {
  using F = Format<T>;
  if (F::kZero == 0 || (F::kZero == 128 && !kUnsignedCodes)) return 0;
  return F::kSubs == 1 ? x.biased / 128 * F::kZero : -F::kZero * x.half_sum[sub];
}

// Integer sums of one row over vectors [kFirst, kEnd) of a quarter.
#if defined(__ARM_FEATURE_DOTPROD)

template <size_t J>
OCTAVO_FN int32x4_t dot_vector(int32x4_t acc, Quarter u, int8x16_t x) {
  if constexpr (kUnsignedCodes) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
    return vusdotq_laneq_s32(acc, u.v, x, J);
#endif
  }
  return vdotq_laneq_s32(acc, vreinterpretq_s8_u8(u.v), x, J);
}
template <WeightType T, size_t kFirst, size_t kEnd>
OCTAVO_FN int32x4_t dot_row(int32x4_t acc, const Quarter (&u)[8], const int8_t* x) {
  acc = dot_vector<kFirst % 4>(acc, u[kFirst], vld1q_s8(x + kFirst / 4 * 16));
  if constexpr (kFirst + 1 < kEnd)
    return dot_row<T, kFirst + 1, kEnd>(acc, u, x);
  else
    return acc;
}

#else

// How many products of a code and an activation fit 16 bits.
template <WeightType T>
constexpr size_t kProducts = 32767 / (127 * (Format<T>::kTable || Format<T>::kBits == 8 ? 128 : (1 << Format<T>::kBits) - 1));

template <WeightType T, size_t kFirst, size_t kEnd>
OCTAVO_FN int32x4_t dot_row(int32x4_t acc, const Quarter (&u)[8], const int8_t* x) {
  constexpr size_t kRun = kProducts<T> < kEnd - kFirst ? kProducts<T> : kEnd - kFirst;
  int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);
#pragma GCC unroll 8
  for (size_t start = kFirst; start < kEnd; start += kRun) {
    int16x8_t low16 = vdupq_n_s16(0), high16 = vdupq_n_s16(0);
#pragma GCC unroll 8
    for (size_t j = start; j < start + kRun; ++j) {
      int32_t four;
      __builtin_memcpy(&four, x + 4 * j, 4);
      const int8x16_t w = vreinterpretq_s8_u8(u[j].v), s = vreinterpretq_s8_s32(vdupq_n_s32(four));
      low16 = j == start ? vmull_s8(vget_low_s8(w), vget_low_s8(s)) : vmlal_s8(low16, vget_low_s8(w), vget_low_s8(s));
      high16 = j == start ? vmull_high_s8(w, s) : vmlal_high_s8(high16, w, s);
    }
    low = vpadalq_s16(low, low16);
    high = vpadalq_s16(high, high16);
  }
  return vaddq_s32(acc, vpaddq_s32(low, high));
}

#endif

// sum += the group's share of 4 outputs, from their integer sums.
template <WeightType T>
OCTAVO_FN float32x4_t add_share(float32x4_t sum, int32x4_t dots, const QuarterScales<T>& s, size_t sub, const Q8Group& x) {
  using F = Format<T>;
  sum = vfmaq_f32(sum, vcvtq_f32_s32(dots), vmulq_n_f32(s.scale[sub], x.scale));
  if constexpr (F::kAffine) {
    const float scaled_sum = F::kSubs == 1 ? x.scaled_sum : x.scale * static_cast<float>(x.half_sum[sub]);
    sum = vfmaq_f32(sum, s.offset[sub], vdupq_n_f32(scaled_sum));
  }
  return sum;
}

template <WeightType T>
OCTAVO_FN float32x4_t add_row(float32x4_t sum, const Quarter (&u)[8], const QuarterScales<T>& s, const Q8Group& x) {
  if constexpr (Format<T>::kSubs == 1) return add_share<T>(sum, dot_row<T, 0, 8>(vdupq_n_s32(zero_point<T>(x, 0)), u, x.codes), s, 0, x);
  sum = add_share<T>(sum, dot_row<T, 0, 4>(vdupq_n_s32(zero_point<T>(x, 0)), u, x.codes), s, 0, x);
  return add_share<T>(sum, dot_row<T, 4, 8>(vdupq_n_s32(zero_point<T>(x, Format<T>::kSubs - 1)), u, x.codes), s, Format<T>::kSubs - 1, x);
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
// Vectors 2 i and 2 i + 1 become 8 inputs of outputs 0 and 1, and of 2 and 3.
OCTAVO_FN void zip_codes(Quarter (&u)[8]) {
  for (size_t i = 0; i < 8; i += 2) {
    const uint32x4_t a = vreinterpretq_u32_u8(u[i].v), b = vreinterpretq_u32_u8(u[i + 1].v);
    u[i].v = vreinterpretq_u8_u32(vzip1q_u32(a, b));
    u[i + 1].v = vreinterpretq_u8_u32(vzip2q_u32(a, b));
  }
}

// Two rows at once, with zipped codes.
template <WeightType T>
OCTAVO_FN void add_rows(float32x4_t& sum_a, float32x4_t& sum_b, const Quarter (&zipped)[8], const QuarterScales<T>& s, const Q8Group& a,
                        const Q8Group& b) {
  constexpr size_t kSubs = Format<T>::kSubs, kVectors = 8 / kSubs;
  for (size_t sub = 0; sub < kSubs; ++sub) {
    int32x4_t first = vdupq_n_s32(0), second = vdupq_n_s32(0);  // outputs 0 and 1, 2 and 3: each of row a, of row b
    for (size_t j = sub * kVectors; j < (sub + 1) * kVectors; j += 2) {
      const int8x16_t x = vcombine_s8(vld1_s8(a.codes + 4 * j), vld1_s8(b.codes + 4 * j));
      first = vusmmlaq_s32(first, zipped[j].v, x);
      second = vusmmlaq_s32(second, zipped[j + 1].v, x);
    }
    const int32x4_t dots_a = vaddq_s32(vuzp1q_s32(first, second), vdupq_n_s32(zero_point<T>(a, sub)));
    const int32x4_t dots_b = vaddq_s32(vuzp2q_s32(first, second), vdupq_n_s32(zero_point<T>(b, sub)));
    sum_a = add_share<T>(sum_a, dots_a, s, sub, a);
    sum_b = add_share<T>(sum_b, dots_b, s, sub, b);
  }
}
#endif

// sums[r] += the shares of one quarter of a cell; groups[r] is row r's.
template <WeightType T, int R>
OCTAVO_FN void add_quarter(float32x4_t (&sums)[R], const uint8_t* head, const uint8_t* cell, size_t quarter,
                           const Q8Group* const (&groups)[R]) {
  Quarter u[8];
  load_codes<T>(cell + 16 * quarter, u);
  const QuarterScales<T> s = load_quarter_scales<T>(head, cell, quarter);
  if constexpr (Format<T>::kZero == 128 && !kUnsignedCodes)
    for (Quarter& codes : u) codes.v = veorq_u8(codes.v, vdupq_n_u8(0x80));
#if defined(__ARM_FEATURE_MATMUL_INT8)
  if constexpr (R > 1) {
    zip_codes(u);
#pragma GCC unroll 8
    for (int r = 0; r + 1 < R; r += 2) add_rows<T>(sums[r], sums[r + 1], u, s, *groups[r], *groups[r + 1]);
    float32x4_t unused = vdupq_n_f32(0.0f);
    if constexpr (R % 2 != 0) add_rows<T>(sums[R - 1], unused, u, s, *groups[R - 1], *groups[R - 1]);
    return;
  }
#endif
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = add_row<T>(sums[r], u, s, *groups[r]);
}

template <WeightType T, int R>
void quantized_tile(const uint8_t* tile, const char* x, size_t stride, size_t columns, const Outliers& outliers, size_t row,
                    float (*sums)[kTile]) {
  float32x4_t sum[4][R];
  for (auto& quarter : sum)
    for (float32x4_t& lanes : quarter) lanes = vdupq_n_f32(0.0f);
  for_cells<T>(tile, columns / 32, [&](const uint8_t* head, const uint8_t* cell, size_t g) __attribute__((always_inline)) {
    prefetch_cell<T, R>(cell + kPrefetchAhead);
    const Q8Group* groups[R];
    for (int r = 0; r < R; ++r) groups[r] = reinterpret_cast<const Q8Group*>(x + r * stride) + g;
#pragma GCC unroll 4
    for (size_t quarter = 0; quarter < 4; ++quarter) add_quarter<T, R>(sum[quarter], head, cell, quarter, groups);
  });
  for (int r = 0; r < R; ++r)
    for (size_t quarter = 0; quarter < 4; ++quarter) vst1q_f32(sums[r] + 4 * quarter, sum[quarter][r]);
  if (outliers.count == 0) return;
  F32 whole[R];
  for (int r = 0; r < R; ++r) whole[r] = f32_load(sums[r]);
  add_outliers<T>(tile, outliers, row, whole);
  for (int r = 0; r < R; ++r) f32_store(sums[r], whole[r]);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
