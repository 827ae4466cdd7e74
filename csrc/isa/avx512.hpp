// Vectors of AVX-512 (F, BW, VL, DQ, VNNI, BF16). The same names exist in avx2.hpp, neon.hpp and generic.hpp, what these
// have in common in plain.hpp; this file documents them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace octavo::OCTAVO_ISA {
namespace {

#define OCTAVO_FN static inline __attribute__((always_inline, unused))

// 16 floats.
struct F32 {
  __m512 v;
};
// 16 int32.
struct I32 {
  __m512i v;
};
// 64 bytes: in dot products 16 lanes × 4.
struct Bytes {
  __m512i v;
};
// 32 bf16: in dot products 16 lanes × 2.
struct Pairs {
  __m512i v;
};

constexpr size_t kLanes = 16;
constexpr size_t kRowsPerPass = 12;  // of matrix kernels, as registers allow
constexpr int kRowsAtOnce = 6;       // of a pass, whose dot products take turns

OCTAVO_FN __mmask16 first_lanes(size_t n) { return static_cast<__mmask16>((1u << n) - 1); }

// ---- fp32; partial loads fill with 0, n is 0 … 16 ----
OCTAVO_FN F32 f32_zero() { return {_mm512_setzero_ps()}; }
OCTAVO_FN F32 f32_set1(float x) { return {_mm512_set1_ps(x)}; }
OCTAVO_FN F32 f32_load(const float* p) { return {_mm512_loadu_ps(p)}; }
OCTAVO_FN F32 f32_load_partial(const float* p, size_t n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
OCTAVO_FN void f32_store(float* p, F32 a) { _mm512_storeu_ps(p, a.v); }
OCTAVO_FN void f32_store_partial(float* p, F32 a, size_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
OCTAVO_FN F32 f32_add(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
OCTAVO_FN F32 f32_sub(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
OCTAVO_FN F32 f32_mul(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
OCTAVO_FN F32 f32_div(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
OCTAVO_FN F32 f32_min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
OCTAVO_FN F32 f32_max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
OCTAVO_FN F32 f32_abs(F32 a) { return {_mm512_abs_ps(a.v)}; }
OCTAVO_FN F32 f32_sqrt(F32 a) { return {_mm512_sqrt_ps(a.v)}; }
OCTAVO_FN F32 f32_round(F32 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }  // half to even
OCTAVO_FN F32 f32_fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }                                // a * b + c
OCTAVO_FN F32 f32_fnma(F32 a, F32 b, F32 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }                              // c - a * b
OCTAVO_FN F32 f32_scale_by_power(F32 a, F32 n) {
  return {_mm512_scalef_ps(a.v, n.v)};
}  // a * 2^n, n whole, -127 … 127; at -127 it may be 0
OCTAVO_FN F32 f32_keep_first(F32 a, size_t n, F32 rest) { return {_mm512_mask_blend_ps(first_lanes(n), rest.v, a.v)}; }
OCTAVO_FN F32 f32_select_less(F32 a, F32 b, F32 yes, F32 no) {  // lane by lane: a < b ? yes : no
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
OCTAVO_FN uint32_t f32_mask_less(F32 a, F32 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }  // bit i: a[i] < b[i]

// Reductions over lanes, in a fixed order: i with i + 8, + 4, + 2, + 1; the same on every instruction set.
OCTAVO_FN float f32_reduce_add(F32 a) {
  __m256 x = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
OCTAVO_FN float f32_reduce_max(F32 a) {
  __m256 x = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

// ---- int32 ----
OCTAVO_FN I32 i32_zero() { return {_mm512_setzero_si512()}; }
OCTAVO_FN I32 i32_set1(int32_t x) { return {_mm512_set1_epi32(x)}; }
OCTAVO_FN I32 i32_add(I32 a, I32 b) { return {_mm512_add_epi32(a.v, b.v)}; }
OCTAVO_FN I32 i32_and(I32 a, I32 b) { return {_mm512_and_si512(a.v, b.v)}; }
OCTAVO_FN I32 i32_or(I32 a, I32 b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int N>
OCTAVO_FN I32 i32_shl(I32 a) {
  return {_mm512_slli_epi32(a.v, N)};
}
template <int N>
OCTAVO_FN I32 i32_sra(I32 a) {
  return {_mm512_srai_epi32(a.v, N)};
}
// Lanes at p shifted right by n, 0 … 31; what comes in from the left is not defined.
OCTAVO_FN I32 i32_load_shifted(const uint8_t* p, int n) { return {_mm512_srl_epi32(_mm512_loadu_si512(p), _mm_cvtsi32_si128(n))}; }
OCTAVO_FN void i32_store(int32_t* p, I32 a) { _mm512_storeu_si512(p, a.v); }
OCTAVO_FN void i32_store_i8(int8_t* p, I32 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(a.v));
}  // saturating
OCTAVO_FN int32_t i32_reduce_add(I32 a) { return _mm512_reduce_add_epi32(a.v); }
// Of each of four groups of 32, given by the larger and the smaller of each pair of its numbers, the two largest, which may be equal; and
// (below) of each of four its sum of lanes. Pairs of vectors side by side, then pairs of pairs.
OCTAVO_FN void f32_largest_two4(const F32 (&larger)[4], const F32 (&smaller)[4], float* largest, float* second) {
  struct Two {
    __m512 first, second;
  };
  const auto join = [](__m512 a, __m512 b, __m512 after_a, __m512 after_b) __attribute__((always_inline)) {
    return Two{_mm512_max_ps(a, b), _mm512_max_ps(_mm512_min_ps(a, b), _mm512_max_ps(after_a, after_b))};
  };
  Two pairs[2];
  for (int i = 0; i < 2; ++i) {
    const __m512 a = larger[2 * i].v, b = larger[2 * i + 1].v, c = smaller[2 * i].v, d = smaller[2 * i + 1].v;
    pairs[i] = join(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b), _mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  }
  const auto low = [](__m512 a, __m512 b) __attribute__((always_inline)) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  const auto high = [](__m512 a, __m512 b) __attribute__((always_inline)) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  const Two all = join(low(pairs[0].first, pairs[1].first), high(pairs[0].first, pairs[1].first), low(pairs[0].second, pairs[1].second),
                       high(pairs[0].second, pairs[1].second));  // in each quarter of the lanes one number a group
  const __m512 swapped = _mm512_shuffle_f32x4(all.first, all.first, 0x4E),
               swapped_after = _mm512_shuffle_f32x4(all.second, all.second, 0x4E);
  const Two half = join(all.first, swapped, all.second, swapped_after);
  const Two one = join(half.first, _mm512_shuffle_f32x4(half.first, half.first, 0xB1), half.second,
                       _mm512_shuffle_f32x4(half.second, half.second, 0xB1));
  _mm_storeu_ps(largest, _mm512_castps512_ps128(one.first));
  _mm_storeu_ps(second, _mm512_castps512_ps128(one.second));
}
OCTAVO_FN void i32_reduce_add4(I32 a, I32 b, I32 c, I32 d, int32_t* out) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a.v, b.v), _mm512_unpackhi_epi32(a.v, b.v));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c.v, d.v), _mm512_unpackhi_epi32(c.v, d.v));
  const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}
OCTAVO_FN I32 i32_from_u8(const uint8_t* p) { return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))}; }
OCTAVO_FN I32 i32_from_i8(const int8_t* p) { return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))}; }
OCTAVO_FN F32 f32_from_i32(I32 a) { return {_mm512_cvtepi32_ps(a.v)}; }
OCTAVO_FN I32 i32_from_f32(F32 a) { return {_mm512_cvtps_epi32(a.v)}; }  // half to even
OCTAVO_FN I32 bits_of(F32 a) { return {_mm512_castps_si512(a.v)}; }
OCTAVO_FN F32 f32_of_bits(I32 a) { return {_mm512_castsi512_ps(a.v)}; }

// ---- 16-bit floats; stores round half to even ----
OCTAVO_FN F32 f16_load(const uint16_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
OCTAVO_FN F32 f16_load_partial(const uint16_t* p, size_t n) { return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))}; }
OCTAVO_FN __m256i f16_round_(F32 a) { return _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
OCTAVO_FN void f16_store(uint16_t* p, F32 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), f16_round_(a)); }
OCTAVO_FN void f16_store_partial(uint16_t* p, F32 a, size_t n) { _mm256_mask_storeu_epi16(p, first_lanes(n), f16_round_(a)); }
// 16 numbers of 8 bits; of e4m3, times 2^-8: its bits in a half's place, where only the exponent's bias differs.
OCTAVO_FN F32 e4m3_load(const uint8_t* p) {
  const __m256i spread = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 7);
  return {_mm512_cvtph_ps(_mm256_and_si256(spread, _mm256_set1_epi16(static_cast<int16_t>(0xBFFF))))};
}
OCTAVO_FN F32 e5m2_load(const uint8_t* p) {
  return {_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 8))};
}
OCTAVO_FN F32 bf16_widen_(__m256i a) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(a), 16))}; }
OCTAVO_FN F32 bf16_load(const uint16_t* p) { return bf16_widen_(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
OCTAVO_FN F32 bf16_load_partial(const uint16_t* p, size_t n) { return bf16_widen_(_mm256_maskz_loadu_epi16(first_lanes(n), p)); }
OCTAVO_FN __m256i bf16_round_(F32 a) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a.v)); }  // subnormals become 0
OCTAVO_FN void bf16_store(uint16_t* p, F32 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bf16_round_(a)); }
OCTAVO_FN void bf16_store_partial(uint16_t* p, F32 a, size_t n) { _mm256_mask_storeu_epi16(p, first_lanes(n), bf16_round_(a)); }

// ---- dot products ----
OCTAVO_FN Bytes bytes_load(const void* p) { return {_mm512_loadu_si512(p)}; }
OCTAVO_FN void bytes_store(void* p, Bytes a) { _mm512_storeu_si512(p, a.v); }
OCTAVO_FN Bytes bytes_set1(uint8_t x) { return {_mm512_set1_epi8(static_cast<char>(x))}; }
OCTAVO_FN Bytes bytes_and(Bytes a, Bytes b) { return {_mm512_and_si512(a.v, b.v)}; }
OCTAVO_FN Bytes bytes_or_and(Bytes a, Bytes b, Bytes mask) {
  return {_mm512_ternarylogic_epi32(a.v, b.v, mask.v, 0xF8)};
}  // a | (b & mask)
template <int N>
OCTAVO_FN Bytes bytes_shift(Bytes a) {  // left by N, right by -N, within 16-bit units: mask afterwards
  if constexpr (N > 0)
    return {_mm512_slli_epi16(a.v, N)};
  else if constexpr (N < 0)
    return {_mm512_srli_epi16(a.v, -N)};
  else
    return a;
}
OCTAVO_FN Bytes bytes_table16(const void* p) { return {_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)))}; }
OCTAVO_FN Bytes bytes_lookup(Bytes table, Bytes index) { return {_mm512_shuffle_epi8(table.v, index.v)}; }  // index 0 … 15
OCTAVO_FN Bytes bytes_broadcast4(const void* p) {                                                           // 4 bytes to each lane
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return {_mm512_set1_epi32(x)};
}
OCTAVO_FN Pairs pairs_load(const uint16_t* p) { return {_mm512_loadu_si512(p)}; }
OCTAVO_FN Pairs pairs_broadcast(const uint16_t* p) { return {bytes_broadcast4(p).v}; }  // 2 bf16 to each lane
OCTAVO_FN Pairs pairs_round(F32 a, F32 b) {  // 32 numbers in order: a's, then b's; as bf16_store rounds them
  return {reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b.v, a.v))};
}
OCTAVO_FN void pairs_store(uint16_t* p, Pairs a) { _mm512_storeu_si512(p, a.v); }
OCTAVO_FN I32 pairs_bits(Pairs a) { return {a.v}; }  // the second of a pair in the upper half

// acc + sum of 4 products u8 × s8 a lane; exact for u < 128 (avx2 saturates above).
OCTAVO_FN I32 dot_u7(I32 acc, Bytes u, Bytes s) { return {_mm512_dpbusd_epi32(acc.v, u.v, s.v)}; }
// The same for codes u that stand for u - 128. If kBiasedDot, the caller starts acc at -128 * sum(s); otherwise at 0.
constexpr bool kBiasedDot = true;
OCTAVO_FN I32 dot_biased(I32 acc, Bytes u, Bytes s) { return {_mm512_dpbusd_epi32(acc.v, u.v, s.v)}; }
// acc + sum of 2 products s16 × s16 a lane.
OCTAVO_FN I32 dot_i16(I32 acc, I32 a, I32 b) { return {_mm512_dpwssd_epi32(acc.v, a.v, b.v)}; }
// acc + sum of 2 products bf16 × bf16 a lane; the order and rounding of the two additions are the instruction set's own.
OCTAVO_FN F32 dot_bf16(F32 acc, Pairs a, Pairs b) {
  return {_mm512_dpbf16_ps(acc.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}

OCTAVO_FN void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
// Of what is read once: it takes no place of others in the outer caches.
OCTAVO_FN void prefetch_once(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_NTA); }

}  // namespace
}  // namespace octavo::OCTAVO_ISA
