// Vectors of AVX2 with FMA and F16C: two registers a vector. What each function does is said in avx512.hpp.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace octavo::OCTAVO_ISA {
namespace {

#define OCTAVO_FN static inline __attribute__((always_inline, unused))

struct F32 {
  __m256 lo, hi;
};
struct I32 {
  __m256i lo, hi;
};
struct Bytes {
  __m256i lo, hi;
};
struct Pairs {
  __m256i lo, hi;
};

constexpr size_t kLanes = 16;
constexpr size_t kRowsPerPass = 4;  // of matrix kernels, as registers allow
constexpr int kRowsAtOnce = 1;

alignas(64) constexpr int32_t kLaneMasks[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
OCTAVO_FN I32 first_lanes(size_t n) {
  const int32_t* p = kLaneMasks + 16 - n;
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}

OCTAVO_FN F32 f32_zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
OCTAVO_FN F32 f32_set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
OCTAVO_FN F32 f32_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
OCTAVO_FN F32 f32_load_partial(const float* p, size_t n) {
  I32 m = first_lanes(n);
  return {_mm256_maskload_ps(p, m.lo), _mm256_maskload_ps(p + 8, m.hi)};
}
OCTAVO_FN void f32_store(float* p, F32 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
OCTAVO_FN void f32_store_partial(float* p, F32 a, size_t n) {
  I32 m = first_lanes(n);
  _mm256_maskstore_ps(p, m.lo, a.lo);
  _mm256_maskstore_ps(p + 8, m.hi, a.hi);
}
OCTAVO_FN F32 f32_add(F32 a, F32 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
OCTAVO_FN F32 f32_sub(F32 a, F32 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
OCTAVO_FN F32 f32_mul(F32 a, F32 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
OCTAVO_FN F32 f32_div(F32 a, F32 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
OCTAVO_FN F32 f32_min(F32 a, F32 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
OCTAVO_FN F32 f32_max(F32 a, F32 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
OCTAVO_FN F32 f32_abs(F32 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
OCTAVO_FN F32 f32_sqrt(F32 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
OCTAVO_FN F32 f32_round(F32 a) {
  return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
OCTAVO_FN F32 f32_fma(F32 a, F32 b, F32 c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
OCTAVO_FN F32 f32_fnma(F32 a, F32 b, F32 c) { return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)}; }
OCTAVO_FN F32 f32_keep_first(F32 a, size_t n, F32 rest) {
  I32 m = first_lanes(n);
  return {_mm256_blendv_ps(rest.lo, a.lo, _mm256_castsi256_ps(m.lo)), _mm256_blendv_ps(rest.hi, a.hi, _mm256_castsi256_ps(m.hi))};
}
OCTAVO_FN F32 f32_select_less(F32 a, F32 b, F32 yes, F32 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
OCTAVO_FN uint32_t f32_mask_less(F32 a, F32 b) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
            high = _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ));
  return static_cast<uint32_t>(low | high << 8);
}

OCTAVO_FN float f32_reduce_add(F32 a) {
  __m256 x = _mm256_add_ps(a.lo, a.hi);
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
OCTAVO_FN float f32_reduce_max(F32 a) {
  __m256 x = _mm256_max_ps(a.lo, a.hi);
  __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

OCTAVO_FN I32 i32_zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
OCTAVO_FN I32 i32_set1(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
OCTAVO_FN I32 i32_add(I32 a, I32 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
OCTAVO_FN I32 i32_and(I32 a, I32 b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
OCTAVO_FN I32 i32_or(I32 a, I32 b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
template <int N>
OCTAVO_FN I32 i32_shl(I32 a) {
  return {_mm256_slli_epi32(a.lo, N), _mm256_slli_epi32(a.hi, N)};
}
template <int N>
OCTAVO_FN I32 i32_sra(I32 a) {
  return {_mm256_srai_epi32(a.lo, N), _mm256_srai_epi32(a.hi, N)};
}
OCTAVO_FN I32 i32_load_shifted(const uint8_t* p, int n) {
  const auto* parts = reinterpret_cast<const __m256i*>(p);
  const __m128i count = _mm_cvtsi32_si128(n);
  return {_mm256_srl_epi32(_mm256_loadu_si256(parts), count), _mm256_srl_epi32(_mm256_loadu_si256(parts + 1), count)};
}
OCTAVO_FN void i32_store(int32_t* p, I32 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}
OCTAVO_FN __m128i i32_pack16_(__m256i a) { return _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)); }
OCTAVO_FN void i32_store_i8(int8_t* p, I32 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(i32_pack16_(a.lo), i32_pack16_(a.hi)));
}
OCTAVO_FN int32_t i32_reduce_add(I32 a) {
  __m256i x = _mm256_add_epi32(a.lo, a.hi);
  __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(y, _mm_shuffle_epi32(y, 0xB1)));
}
OCTAVO_FN I32 i32_from_u8(const uint8_t* p) {
  __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))};
}
OCTAVO_FN I32 i32_from_i8(const int8_t* p) {
  __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))};
}
OCTAVO_FN F32 f32_from_i32(I32 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
OCTAVO_FN I32 i32_from_f32(F32 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
OCTAVO_FN I32 bits_of(F32 a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
OCTAVO_FN F32 f32_of_bits(I32 a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }

OCTAVO_FN F32 f16_load(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
OCTAVO_FN F32 f16_widen_(__m256i a) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))};
}
OCTAVO_FN F32 e4m3_load(const uint8_t* p) {
  const __m256i spread = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 7);
  return f16_widen_(_mm256_and_si256(spread, _mm256_set1_epi16(static_cast<int16_t>(0xBFFF))));
}
OCTAVO_FN F32 e5m2_load(const uint8_t* p) {
  return f16_widen_(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 8));
}
OCTAVO_FN void f16_store(uint16_t* p, F32 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
OCTAVO_FN __m256 bf16_widen_(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
OCTAVO_FN F32 bf16_load(const uint16_t* p) { return {bf16_widen_(p), bf16_widen_(p + 8)}; }
OCTAVO_FN __m128i bf16_round_(__m256 a) {
  __m256i bits = _mm256_castps_si256(a);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
  __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  rounded = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
  return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}
OCTAVO_FN void bf16_store(uint16_t* p, F32 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bf16_round_(a.lo));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), bf16_round_(a.hi));
}
OCTAVO_FN F32 f16_load_partial(const uint16_t* p, size_t n) {
  uint16_t t[16] = {};
  __builtin_memcpy(t, p, n * 2);
  return f16_load(t);
}
OCTAVO_FN F32 bf16_load_partial(const uint16_t* p, size_t n) {
  uint16_t t[16] = {};
  __builtin_memcpy(t, p, n * 2);
  return bf16_load(t);
}
OCTAVO_FN void f16_store_partial(uint16_t* p, F32 a, size_t n) {
  uint16_t t[16];
  f16_store(t, a);
  __builtin_memcpy(p, t, n * 2);
}
OCTAVO_FN void bf16_store_partial(uint16_t* p, F32 a, size_t n) {
  uint16_t t[16];
  bf16_store(t, a);
  __builtin_memcpy(p, t, n * 2);
}

OCTAVO_FN Bytes bytes_load(const void* p) {
  const __m256i* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
OCTAVO_FN void bytes_store(void* p, Bytes a) {
  __m256i* q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, a.lo);
  _mm256_storeu_si256(q + 1, a.hi);
}
OCTAVO_FN Bytes bytes_set1(uint8_t x) { return {_mm256_set1_epi8(static_cast<char>(x)), _mm256_set1_epi8(static_cast<char>(x))}; }
OCTAVO_FN Bytes bytes_and(Bytes a, Bytes b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
OCTAVO_FN Bytes bytes_or_and(Bytes a, Bytes b, Bytes mask) {
  return {_mm256_or_si256(a.lo, _mm256_and_si256(b.lo, mask.lo)), _mm256_or_si256(a.hi, _mm256_and_si256(b.hi, mask.hi))};
}
template <int N>
OCTAVO_FN Bytes bytes_shift(Bytes a) {
  if constexpr (N > 0)
    return {_mm256_slli_epi16(a.lo, N), _mm256_slli_epi16(a.hi, N)};
  else if constexpr (N < 0)
    return {_mm256_srli_epi16(a.lo, -N), _mm256_srli_epi16(a.hi, -N)};
  else
    return a;
}
OCTAVO_FN Bytes bytes_table16(const void* p) {
  __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return {t, t};
}
OCTAVO_FN Bytes bytes_lookup(Bytes table, Bytes index) {
  return {_mm256_shuffle_epi8(table.lo, index.lo), _mm256_shuffle_epi8(table.hi, index.hi)};
}
OCTAVO_FN Bytes bytes_broadcast4(const void* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  __m256i v = _mm256_set1_epi32(x);
  return {v, v};
}
OCTAVO_FN Pairs pairs_load(const uint16_t* p) {
  Bytes b = bytes_load(p);
  return {b.lo, b.hi};
}
OCTAVO_FN Pairs pairs_broadcast(const uint16_t* p) {
  Bytes b = bytes_broadcast4(p);
  return {b.lo, b.hi};
}
OCTAVO_FN void pairs_store(uint16_t* p, Pairs a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16), a.hi);
}
OCTAVO_FN I32 pairs_bits(Pairs a) { return {a.lo, a.hi}; }

OCTAVO_FN __m256i dot_u7_(__m256i acc, __m256i u, __m256i s) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1)));
}
OCTAVO_FN I32 dot_u7(I32 acc, Bytes u, Bytes s) { return {dot_u7_(acc.lo, u.lo, s.lo), dot_u7_(acc.hi, u.hi, s.hi)}; }
constexpr bool kBiasedDot = false;
// |w| <= 128 as unsigned times sign(w) * s: pairs stay within int16, for s is never -128.
OCTAVO_FN __m256i dot_signed_(__m256i acc, __m256i u, __m256i s) {
  __m256i w = _mm256_xor_si256(u, _mm256_set1_epi8(-128));
  return dot_u7_(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(s, w));
}
OCTAVO_FN I32 dot_biased(I32 acc, Bytes u, Bytes s) { return {dot_signed_(acc.lo, u.lo, s.lo), dot_signed_(acc.hi, u.hi, s.hi)}; }
OCTAVO_FN I32 dot_i16(I32 acc, I32 a, I32 b) {
  return {_mm256_add_epi32(acc.lo, _mm256_madd_epi16(a.lo, b.lo)), _mm256_add_epi32(acc.hi, _mm256_madd_epi16(a.hi, b.hi))};
}
OCTAVO_FN __m256 dot_bf16_(__m256 acc, __m256i a, __m256i b) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  acc = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)), acc);
  return _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(a, high)), _mm256_castsi256_ps(_mm256_and_si256(b, high)), acc);
}
OCTAVO_FN F32 dot_bf16(F32 acc, Pairs a, Pairs b) { return {dot_bf16_(acc.lo, a.lo, b.lo), dot_bf16_(acc.hi, a.hi, b.hi)}; }

OCTAVO_FN void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
// Of what is read once: it takes no place of others in the outer caches.
OCTAVO_FN void prefetch_once(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_NTA); }

}  // namespace
}  // namespace octavo::OCTAVO_ISA

#include "isa/plain.hpp"
