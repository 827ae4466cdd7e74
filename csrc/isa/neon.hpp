// Vectors of 64-bit Arm: four 128-bit registers a vector. What each function does is said in avx512.hpp; bits are those of avx2.hpp, but
// for what is said here. A compiler that is told more than plain NEON makes use of the dot products (DOTPROD), and of the matrix products
// of bytes and the dot products of bf16 (I8MM, BF16), for which there are units of their own. Quantized weights: neon_tiles.hpp.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#define OCTAVO_NEON 1

namespace octavo::OCTAVO_ISA {
namespace {

#define OCTAVO_FN static inline __attribute__((always_inline, unused))

struct F32 {
  float32x4_t q[4];
};
struct I32 {
  int32x4_t q[4];
};
struct Bytes {
  uint8x16_t q[4];
};
struct Pairs {
  uint16x8_t q[4];
};

constexpr size_t kLanes = 16;
constexpr size_t kRowsPerPass = 8;  // of matrix kernels

// The vector whose part i is fn(i).
template <typename V, typename Fn>
OCTAVO_FN V parts_(Fn fn) {
  return {{fn(0), fn(1), fn(2), fn(3)}};
}
#define OCTAVO_PARTS(V, expression) parts_<V>([&](int i) __attribute__((always_inline)) { return expression; })

OCTAVO_FN F32 f32_set1(float x) { return OCTAVO_PARTS(F32, (static_cast<void>(i), vdupq_n_f32(x))); }
OCTAVO_FN F32 f32_zero() { return f32_set1(0.0f); }
OCTAVO_FN F32 f32_load(const float* p) { return OCTAVO_PARTS(F32, vld1q_f32(p + 4 * i)); }
OCTAVO_FN F32 f32_load_partial(const float* p, size_t n) {
  float lanes[kLanes] = {};
  for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
  return f32_load(lanes);
}
OCTAVO_FN void f32_store(float* p, F32 a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.q[i]);
}
OCTAVO_FN void f32_store_partial(float* p, F32 a, size_t n) {
  float lanes[kLanes];
  f32_store(lanes, a);
  for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
}
OCTAVO_FN F32 f32_add(F32 a, F32 b) { return OCTAVO_PARTS(F32, vaddq_f32(a.q[i], b.q[i])); }
OCTAVO_FN F32 f32_sub(F32 a, F32 b) { return OCTAVO_PARTS(F32, vsubq_f32(a.q[i], b.q[i])); }
OCTAVO_FN F32 f32_mul(F32 a, F32 b) { return OCTAVO_PARTS(F32, vmulq_f32(a.q[i], b.q[i])); }
OCTAVO_FN F32 f32_div(F32 a, F32 b) { return OCTAVO_PARTS(F32, vdivq_f32(a.q[i], b.q[i])); }
// The second operand where they are equal or one is NaN, as on x86: vminq would keep the NaN, vminnmq drop it.
OCTAVO_FN float32x4_t min_(float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
OCTAVO_FN float32x4_t max_(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
OCTAVO_FN F32 f32_min(F32 a, F32 b) { return OCTAVO_PARTS(F32, min_(a.q[i], b.q[i])); }
OCTAVO_FN F32 f32_max(F32 a, F32 b) { return OCTAVO_PARTS(F32, max_(a.q[i], b.q[i])); }
OCTAVO_FN F32 f32_abs(F32 a) { return OCTAVO_PARTS(F32, vabsq_f32(a.q[i])); }
OCTAVO_FN F32 f32_sqrt(F32 a) { return OCTAVO_PARTS(F32, vsqrtq_f32(a.q[i])); }
OCTAVO_FN F32 f32_round(F32 a) { return OCTAVO_PARTS(F32, vrndnq_f32(a.q[i])); }
OCTAVO_FN F32 f32_fma(F32 a, F32 b, F32 c) { return OCTAVO_PARTS(F32, vfmaq_f32(c.q[i], a.q[i], b.q[i])); }
OCTAVO_FN F32 f32_fnma(F32 a, F32 b, F32 c) { return OCTAVO_PARTS(F32, vfmsq_f32(c.q[i], a.q[i], b.q[i])); }
alignas(64) constexpr uint32_t kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
OCTAVO_FN F32 f32_keep_first(F32 a, size_t n, F32 rest) {
  const uint32x4_t count = vdupq_n_u32(static_cast<uint32_t>(n));
  return OCTAVO_PARTS(F32, vbslq_f32(vcltq_u32(vld1q_u32(kLaneNumbers + 4 * i), count), a.q[i], rest.q[i]));
}
OCTAVO_FN F32 f32_select_less(F32 a, F32 b, F32 yes, F32 no) {
  return OCTAVO_PARTS(F32, vbslq_f32(vcltq_f32(a.q[i], b.q[i]), yes.q[i], no.q[i]));
}
OCTAVO_FN uint32_t f32_mask_less(F32 a, F32 b) {
  alignas(16) constexpr uint32_t kBits[4] = {1, 2, 4, 8};
  uint32_t mask = 0;
  for (int i = 0; i < 4; ++i) mask |= vaddvq_u32(vandq_u32(vcltq_f32(a.q[i], b.q[i]), vld1q_u32(kBits))) << 4 * i;
  return mask;
}

OCTAVO_FN float32x4_t swap_halves_(float32x4_t a) { return vextq_f32(a, a, 2); }
OCTAVO_FN float f32_reduce_add(F32 a) {
  float32x4_t x = vaddq_f32(vaddq_f32(a.q[0], a.q[2]), vaddq_f32(a.q[1], a.q[3]));
  x = vaddq_f32(x, swap_halves_(x));
  return vgetq_lane_f32(x, 0) + vgetq_lane_f32(x, 1);
}
OCTAVO_FN float f32_reduce_max(F32 a) {
  float32x4_t x = max_(max_(a.q[0], a.q[2]), max_(a.q[1], a.q[3]));
  x = max_(x, swap_halves_(x));
  return vgetq_lane_f32(max_(x, vrev64q_f32(x)), 0);
}

OCTAVO_FN I32 i32_set1(int32_t x) { return OCTAVO_PARTS(I32, (static_cast<void>(i), vdupq_n_s32(x))); }
OCTAVO_FN I32 i32_zero() { return i32_set1(0); }
OCTAVO_FN I32 i32_add(I32 a, I32 b) { return OCTAVO_PARTS(I32, vaddq_s32(a.q[i], b.q[i])); }
OCTAVO_FN I32 i32_and(I32 a, I32 b) { return OCTAVO_PARTS(I32, vandq_s32(a.q[i], b.q[i])); }
OCTAVO_FN I32 i32_or(I32 a, I32 b) { return OCTAVO_PARTS(I32, vorrq_s32(a.q[i], b.q[i])); }
template <int N>
OCTAVO_FN I32 i32_shl(I32 a) {
  return OCTAVO_PARTS(I32, vshlq_n_s32(a.q[i], N));
}
template <int N>
OCTAVO_FN I32 i32_sra(I32 a) {
  return OCTAVO_PARTS(I32, vshrq_n_s32(a.q[i], N));
}
OCTAVO_FN I32 i32_load_shifted(const uint8_t* p, int n) {
  return OCTAVO_PARTS(I32, vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_u8(vld1q_u8(p + 16 * i)), vdupq_n_s32(-n))));
}
OCTAVO_FN void i32_store(int32_t* p, I32 a) {
  for (int i = 0; i < 4; ++i) vst1q_s32(p + 4 * i, a.q[i]);
}
OCTAVO_FN void i32_store_i8(int8_t* p, I32 a) {
  const int16x8_t low = vqmovn_high_s32(vqmovn_s32(a.q[0]), a.q[1]), high = vqmovn_high_s32(vqmovn_s32(a.q[2]), a.q[3]);
  vst1q_s8(p, vqmovn_high_s16(vqmovn_s16(low), high));
}
OCTAVO_FN int32_t i32_reduce_add(I32 a) { return vaddvq_s32(vaddq_s32(vaddq_s32(a.q[0], a.q[1]), vaddq_s32(a.q[2], a.q[3]))); }
OCTAVO_FN I32 i32_from_u8(const uint8_t* p) {
  const uint8x16_t x = vld1q_u8(p);
  const int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(x))), high = vreinterpretq_s16_u16(vmovl_high_u8(x));
  return {{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)}};
}
OCTAVO_FN I32 i32_from_i8(const int8_t* p) {
  const int8x16_t x = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_high_s8(x);
  return {{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)}};
}
OCTAVO_FN F32 f32_from_i32(I32 a) { return OCTAVO_PARTS(F32, vcvtq_f32_s32(a.q[i])); }
OCTAVO_FN I32 i32_from_f32(F32 a) { return OCTAVO_PARTS(I32, vcvtnq_s32_f32(a.q[i])); }  // beyond int32: its end; NaN: 0
OCTAVO_FN I32 bits_of(F32 a) { return OCTAVO_PARTS(I32, vreinterpretq_s32_f32(a.q[i])); }
OCTAVO_FN F32 f32_of_bits(I32 a) { return OCTAVO_PARTS(F32, vreinterpretq_f32_s32(a.q[i])); }

OCTAVO_FN float32x4_t f16_load4(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
OCTAVO_FN F32 f16_load(const uint16_t* p) { return OCTAVO_PARTS(F32, f16_load4(p + 4 * i)); }
OCTAVO_FN F32 f16_widen_(uint16x8_t low, uint16x8_t high) {
  const float16x8_t a = vreinterpretq_f16_u16(low), b = vreinterpretq_f16_u16(high);
  return {{vcvt_f32_f16(vget_low_f16(a)), vcvt_high_f32_f16(a), vcvt_f32_f16(vget_low_f16(b)), vcvt_high_f32_f16(b)}};
}
OCTAVO_FN F32 e4m3_load(const uint8_t* p) {
  const int8x16_t x = vld1q_s8(reinterpret_cast<const int8_t*>(p));
  const uint16x8_t kept = vdupq_n_u16(0xBFFF);
  return f16_widen_(vandq_u16(vreinterpretq_u16_s16(vshll_n_s8(vget_low_s8(x), 7)), kept),
                    vandq_u16(vreinterpretq_u16_s16(vshll_high_n_s8(x, 7)), kept));
}
OCTAVO_FN F32 e5m2_load(const uint8_t* p) {
  const uint8x16_t x = vld1q_u8(p);
  return f16_widen_(vshll_n_u8(vget_low_u8(x), 8), vshll_high_n_u8(x, 8));
}
OCTAVO_FN void f16_store(uint16_t* p, F32 a) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.q[i])));
}
OCTAVO_FN F32 bf16_load(const uint16_t* p) { return OCTAVO_PARTS(F32, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16))); }
OCTAVO_FN uint16x4_t bf16_round_(float32x4_t a) {
  const uint32x4_t bits = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF)));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(a, a), rounded, vorrq_u32(bits, vdupq_n_u32(0x400000))), 16);
}
OCTAVO_FN void bf16_store(uint16_t* p, F32 a) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, bf16_round_(a.q[i]));
}
OCTAVO_FN F32 f16_load_partial(const uint16_t* p, size_t n) {
  uint16_t lanes[kLanes] = {};
  for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
  return f16_load(lanes);
}
OCTAVO_FN F32 bf16_load_partial(const uint16_t* p, size_t n) {
  uint16_t lanes[kLanes] = {};
  for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
  return bf16_load(lanes);
}
OCTAVO_FN void f16_store_partial(uint16_t* p, F32 a, size_t n) {
  uint16_t lanes[kLanes];
  f16_store(lanes, a);
  for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
}
OCTAVO_FN void bf16_store_partial(uint16_t* p, F32 a, size_t n) {
  uint16_t lanes[kLanes];
  bf16_store(lanes, a);
  for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
}

OCTAVO_FN Bytes bytes_load(const void* p) { return OCTAVO_PARTS(Bytes, vld1q_u8(static_cast<const uint8_t*>(p) + 16 * i)); }
OCTAVO_FN void bytes_store(void* p, Bytes a) {
  for (int i = 0; i < 4; ++i) vst1q_u8(static_cast<uint8_t*>(p) + 16 * i, a.q[i]);
}
OCTAVO_FN Bytes bytes_set1(uint8_t x) { return OCTAVO_PARTS(Bytes, (static_cast<void>(i), vdupq_n_u8(x))); }
OCTAVO_FN Bytes bytes_and(Bytes a, Bytes b) { return OCTAVO_PARTS(Bytes, vandq_u8(a.q[i], b.q[i])); }
OCTAVO_FN Bytes bytes_or_and(Bytes a, Bytes b, Bytes mask) { return OCTAVO_PARTS(Bytes, vorrq_u8(a.q[i], vandq_u8(b.q[i], mask.q[i]))); }
template <int N>
OCTAVO_FN uint8x16_t shift_(uint8x16_t a) {
  if constexpr (N > 0)
    return vshlq_n_u8(a, N);
  else if constexpr (N < 0)
    return vshrq_n_u8(a, -N);
  else
    return a;
}
template <int N>
OCTAVO_FN Bytes bytes_shift(Bytes a) {
  return OCTAVO_PARTS(Bytes, shift_<N>(a.q[i]));
}
OCTAVO_FN Bytes bytes_table16(const void* p) {
  const uint8x16_t table = vld1q_u8(static_cast<const uint8_t*>(p));
  return {{table, table, table, table}};
}
OCTAVO_FN Bytes bytes_lookup(Bytes table, Bytes index) { return OCTAVO_PARTS(Bytes, vqtbl1q_u8(table.q[i], index.q[i])); }
OCTAVO_FN Bytes bytes_broadcast4(const void* p) {
  uint32_t x;
  __builtin_memcpy(&x, p, 4);
  return OCTAVO_PARTS(Bytes, (static_cast<void>(i), vreinterpretq_u8_u32(vdupq_n_u32(x))));
}
OCTAVO_FN Pairs pairs_load(const uint16_t* p) { return OCTAVO_PARTS(Pairs, vld1q_u16(p + 8 * i)); }
OCTAVO_FN Pairs pairs_broadcast(const uint16_t* p) {
  const Bytes both = bytes_broadcast4(p);
  return OCTAVO_PARTS(Pairs, vreinterpretq_u16_u8(both.q[i]));
}
OCTAVO_FN void pairs_store(uint16_t* p, Pairs a) {
  for (size_t i = 0; i < 4; ++i) vst1q_u16(p + 8 * i, a.q[i]);
}
OCTAVO_FN I32 pairs_bits(Pairs a) { return OCTAVO_PARTS(I32, vreinterpretq_s32_u16(a.q[i])); }

OCTAVO_FN int32x4_t dot_signed_(int32x4_t acc, int8x16_t w, int8x16_t s) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(acc, w, s);
#else
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(s)), high = vmull_high_s8(w, s);
  return vaddq_s32(acc, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}
OCTAVO_FN int8x16_t less_128_(uint8x16_t u) { return vreinterpretq_s8_u8(veorq_u8(u, vdupq_n_u8(0x80))); }
constexpr bool kBiasedDot = false;
OCTAVO_FN I32 dot_biased(I32 acc, Bytes u, Bytes s) {
  return OCTAVO_PARTS(I32, dot_signed_(acc.q[i], less_128_(u.q[i]), vreinterpretq_s8_u8(s.q[i])));
}
OCTAVO_FN I32 dot_u7(I32 acc, Bytes u, Bytes s) {  // exact for all u, as both are taken as signed: 128 s more and 128 s less
  const I32 biased = dot_biased(acc, u, s), more = dot_biased(i32_zero(), bytes_set1(0), s);
  return OCTAVO_PARTS(I32, vsubq_s32(biased.q[i], more.q[i]));
}
// What machine.hpp takes for the peak of products of bytes: the instructions that most of neon_tiles.hpp runs on, 256 multiplications and
// additions, or 128, a call.
#if defined(__ARM_FEATURE_DOTPROD) && !defined(__ARM_FEATURE_MATMUL_INT8)
constexpr double kInt8Ops = 128.0;
#else
constexpr double kInt8Ops = 256.0;
#endif
OCTAVO_FN int32x4_t multiply_int8_(int32x4_t acc, uint8x16_t a, int8x16_t b) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  return vusmmlaq_s32(acc, a, b);
#elif defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(acc, vreinterpretq_s8_u8(a), b);
#else
  const int8x16_t w = vreinterpretq_s8_u8(a);
  const int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(w), vget_low_s8(b)), vget_low_s8(w), vget_low_s8(b));
  return vpadalq_s16(vpadalq_s16(acc, low), vmlal_high_s8(vmull_high_s8(w, b), w, b));
#endif
}
OCTAVO_FN I32 multiply_int8(I32 acc, Bytes a, Bytes b) {
  return OCTAVO_PARTS(I32, multiply_int8_(acc.q[i], a.q[i], vreinterpretq_s8_u8(b.q[i])));
}
OCTAVO_FN float32x4_t dot_bf16_(float32x4_t acc, uint16x8_t a, uint16x8_t b) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  return vbfdotq_f32(acc, vreinterpretq_bf16_u16(a), vreinterpretq_bf16_u16(b));
#else
  const uint32x4_t x = vreinterpretq_u32_u16(a), y = vreinterpretq_u32_u16(b), high = vdupq_n_u32(0xFFFF0000u);
  acc = vfmaq_f32(acc, vreinterpretq_f32_u32(vshlq_n_u32(x, 16)), vreinterpretq_f32_u32(vshlq_n_u32(y, 16)));
  return vfmaq_f32(acc, vreinterpretq_f32_u32(vandq_u32(x, high)), vreinterpretq_f32_u32(vandq_u32(y, high)));
#endif
}
OCTAVO_FN F32 dot_bf16(F32 acc, Pairs a, Pairs b) { return OCTAVO_PARTS(F32, dot_bf16_(acc.q[i], a.q[i], b.q[i])); }

OCTAVO_FN void prefetch(const void* p) { __builtin_prefetch(p); }
OCTAVO_FN void prefetch_once(const void* p) { __builtin_prefetch(p, 0, 0); }

}  // namespace
}  // namespace octavo::OCTAVO_ISA

#include "isa/plain.hpp"
