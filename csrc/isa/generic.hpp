// Vectors in plain C++, for any CPU: arrays of 16 lanes that a compiler may or may not map to registers. What each function does is
// said in avx512.hpp. Products and sums are rounded apart (f32_fma is not fused): a fused one would be a library call on some CPUs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::OCTAVO_ISA {
namespace {

#define OCTAVO_FN static inline __attribute__((always_inline, unused))

struct F32 {
  float v[16];
};
struct I32 {
  int32_t v[16];
};
struct Bytes {
  uint8_t v[64];
};
struct Pairs {
  uint16_t v[32];
};

constexpr size_t kLanes = 16;
constexpr size_t kRowsPerPass = 4;  // of matrix kernels, as registers allow

template <typename V, typename Fn>
OCTAVO_FN V lanes_(Fn fn) {
  V r;
  for (int i = 0; i < static_cast<int>(sizeof(r.v) / sizeof(r.v[0])); ++i) r.v[i] = fn(i);
  return r;
}
template <typename To, typename From>
OCTAVO_FN To bit_cast_(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To r;
  __builtin_memcpy(&r, &x, sizeof r);
  return r;
}

OCTAVO_FN F32 f32_set1(float x) {
  return lanes_<F32>([=](int) { return x; });
}
OCTAVO_FN F32 f32_zero() { return f32_set1(0.0f); }
OCTAVO_FN F32 f32_load(const float* p) { return lanes_<F32>([=](int i) { return p[i]; }); }
OCTAVO_FN F32 f32_load_partial(const float* p, size_t n) {
  F32 r = f32_zero();
  for (size_t i = 0; i < n; ++i) r.v[i] = p[i];
  return r;
}
OCTAVO_FN void f32_store_partial(float* p, F32 a, size_t n) {
  for (size_t i = 0; i < n; ++i) p[i] = a.v[i];
}
OCTAVO_FN void f32_store(float* p, F32 a) { f32_store_partial(p, a, 16); }
OCTAVO_FN F32 f32_add(F32 a, F32 b) { return lanes_<F32>([&](int i) { return a.v[i] + b.v[i]; }); }
OCTAVO_FN F32 f32_sub(F32 a, F32 b) { return lanes_<F32>([&](int i) { return a.v[i] - b.v[i]; }); }
OCTAVO_FN F32 f32_mul(F32 a, F32 b) { return lanes_<F32>([&](int i) { return a.v[i] * b.v[i]; }); }
OCTAVO_FN F32 f32_div(F32 a, F32 b) { return lanes_<F32>([&](int i) { return a.v[i] / b.v[i]; }); }
OCTAVO_FN F32 f32_min(F32 a, F32 b) { return lanes_<F32>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; }); }
OCTAVO_FN F32 f32_max(F32 a, F32 b) { return lanes_<F32>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
OCTAVO_FN F32 f32_abs(F32 a) { return lanes_<F32>([&](int i) { return __builtin_fabsf(a.v[i]); }); }
OCTAVO_FN F32 f32_sqrt(F32 a) { return lanes_<F32>([&](int i) { return __builtin_sqrtf(a.v[i]); }); }
// Adding and taking away 2^23 rounds half to even; from 2^23 on all floats are whole.
OCTAVO_FN float round_(float x) {
  float big = __builtin_copysignf(8388608.0f, x);
  return __builtin_fabsf(x) < 8388608.0f ? (x + big) - big : x;
}
OCTAVO_FN F32 f32_round(F32 a) { return lanes_<F32>([&](int i) { return round_(a.v[i]); }); }
OCTAVO_FN F32 f32_fma(F32 a, F32 b, F32 c) { return lanes_<F32>([&](int i) { return a.v[i] * b.v[i] + c.v[i]; }); }
OCTAVO_FN F32 f32_fnma(F32 a, F32 b, F32 c) { return lanes_<F32>([&](int i) { return c.v[i] - a.v[i] * b.v[i]; }); }
OCTAVO_FN F32 f32_keep_first(F32 a, size_t n, F32 rest) {
  return lanes_<F32>([&](int i) { return static_cast<size_t>(i) < n ? a.v[i] : rest.v[i]; });
}
OCTAVO_FN F32 f32_select_less(F32 a, F32 b, F32 yes, F32 no) {
  return lanes_<F32>([&](int i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
}

OCTAVO_FN float f32_reduce_add(F32 a) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  return a.v[0];
}
OCTAVO_FN float f32_reduce_max(F32 a) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  return a.v[0];
}

OCTAVO_FN I32 i32_set1(int32_t x) {
  return lanes_<I32>([=](int) { return x; });
}
OCTAVO_FN I32 i32_zero() { return i32_set1(0); }
OCTAVO_FN I32 i32_add(I32 a, I32 b) { return lanes_<I32>([&](int i) { return a.v[i] + b.v[i]; }); }
OCTAVO_FN I32 i32_and(I32 a, I32 b) { return lanes_<I32>([&](int i) { return a.v[i] & b.v[i]; }); }
OCTAVO_FN I32 i32_or(I32 a, I32 b) { return lanes_<I32>([&](int i) { return a.v[i] | b.v[i]; }); }
template <int N>
OCTAVO_FN I32 i32_shl(I32 a) {
  return lanes_<I32>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << N); });
}
template <int N>
OCTAVO_FN I32 i32_sra(I32 a) {
  return lanes_<I32>([&](int i) { return a.v[i] >> N; });
}
OCTAVO_FN void i32_store(int32_t* p, I32 a) {
  for (int i = 0; i < 16; ++i) p[i] = a.v[i];
}
OCTAVO_FN void i32_store_i8(int8_t* p, I32 a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a.v[i] < -128 ? -128 : a.v[i] > 127 ? 127 : a.v[i]);
}
OCTAVO_FN int32_t i32_reduce_add(I32 a) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += a.v[i];
  return sum;
}
OCTAVO_FN I32 i32_from_u8(const uint8_t* p) { return lanes_<I32>([=](int i) { return static_cast<int32_t>(p[i]); }); }
OCTAVO_FN I32 i32_from_i8(const int8_t* p) { return lanes_<I32>([=](int i) { return static_cast<int32_t>(p[i]); }); }
OCTAVO_FN F32 f32_from_i32(I32 a) { return lanes_<F32>([&](int i) { return static_cast<float>(a.v[i]); }); }
OCTAVO_FN I32 i32_from_f32(F32 a) {  // out of range and NaN: INT32_MIN, as x86 has it
  return lanes_<I32>([&](int i) {
    float x = round_(a.v[i]);
    return x >= -2147483648.0f && x < 2147483648.0f ? static_cast<int32_t>(x) : INT32_MIN;
  });
}
OCTAVO_FN I32 bits_of(F32 a) { return bit_cast_<I32>(a); }
OCTAVO_FN F32 f32_of_bits(I32 a) { return bit_cast_<F32>(a); }

OCTAVO_FN float f16_widen_(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, magnitude = h & 0x7FFF;
  float value = magnitude >= 0x7C00 ? bit_cast_<float>(0x7F800000u | (magnitude << 13))
                                    : bit_cast_<float>(magnitude << 13) * bit_cast_<float>(0x77800000u);  // * 2^112, exact
  return bit_cast_<float>(bit_cast_<uint32_t>(value) | sign);
}
OCTAVO_FN uint16_t f16_round_(float x) {
  uint32_t bits = bit_cast_<uint32_t>(x), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00 | ((magnitude >> 13) & 0x3FF));
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00);
  if (magnitude < 0x38800000u) {  // subnormal: let the fp32 adder round at 2^-24
    float y = bit_cast_<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (bit_cast_<uint32_t>(y) - 0x3F000000u));
  }
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xFFF + ((magnitude >> 13) & 1)) >> 13));
}
OCTAVO_FN float bf16_widen_(uint16_t h) { return bit_cast_<float>(static_cast<uint32_t>(h) << 16); }
OCTAVO_FN uint16_t bf16_round_(float x) {
  uint32_t bits = bit_cast_<uint32_t>(x);
  if (x != x) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
OCTAVO_FN F32 f16_load_partial(const uint16_t* p, size_t n) {
  F32 r = f32_zero();
  for (size_t i = 0; i < n; ++i) r.v[i] = f16_widen_(p[i]);
  return r;
}
OCTAVO_FN F32 f16_load(const uint16_t* p) { return f16_load_partial(p, 16); }
OCTAVO_FN void f16_store_partial(uint16_t* p, F32 a, size_t n) {
  for (size_t i = 0; i < n; ++i) p[i] = f16_round_(a.v[i]);
}
OCTAVO_FN void f16_store(uint16_t* p, F32 a) { f16_store_partial(p, a, 16); }
OCTAVO_FN F32 bf16_load_partial(const uint16_t* p, size_t n) {
  F32 r = f32_zero();
  for (size_t i = 0; i < n; ++i) r.v[i] = bf16_widen_(p[i]);
  return r;
}
OCTAVO_FN F32 bf16_load(const uint16_t* p) { return bf16_load_partial(p, 16); }
OCTAVO_FN void bf16_store_partial(uint16_t* p, F32 a, size_t n) {
  for (size_t i = 0; i < n; ++i) p[i] = bf16_round_(a.v[i]);
}
OCTAVO_FN void bf16_store(uint16_t* p, F32 a) { bf16_store_partial(p, a, 16); }

OCTAVO_FN Bytes bytes_load(const void* p) {
  Bytes r;
  __builtin_memcpy(&r, p, 64);
  return r;
}
OCTAVO_FN void bytes_store(void* p, Bytes a) { __builtin_memcpy(p, &a, 64); }
OCTAVO_FN Bytes bytes_set1(uint8_t x) {
  return lanes_<Bytes>([=](int) { return x; });
}
OCTAVO_FN Bytes bytes_and(Bytes a, Bytes b) { return lanes_<Bytes>([&](int i) { return static_cast<uint8_t>(a.v[i] & b.v[i]); }); }
OCTAVO_FN Bytes bytes_or_and(Bytes a, Bytes b, Bytes mask) {
  return lanes_<Bytes>([&](int i) { return static_cast<uint8_t>(a.v[i] | (b.v[i] & mask.v[i])); });
}
template <int N>
OCTAVO_FN Bytes bytes_shift(Bytes a) {  // bits that cross a byte's edge are lost here; callers mask them anyway
  return lanes_<Bytes>([&](int i) {
    if constexpr (N >= 0) return static_cast<uint8_t>(a.v[i] << N);
    else return static_cast<uint8_t>(a.v[i] >> -N);
  });
}
OCTAVO_FN Bytes bytes_table16(const void* p) {
  Bytes r;
  for (int i = 0; i < 4; ++i) __builtin_memcpy(r.v + 16 * i, p, 16);
  return r;
}
OCTAVO_FN Bytes bytes_lookup(Bytes table, Bytes index) { return lanes_<Bytes>([&](int i) { return table.v[index.v[i]]; }); }
OCTAVO_FN Bytes bytes_broadcast4(const void* p) {
  Bytes r;
  for (int i = 0; i < 16; ++i) __builtin_memcpy(r.v + 4 * i, p, 4);
  return r;
}
OCTAVO_FN Pairs pairs_load(const uint16_t* p) { return bit_cast_<Pairs>(bytes_load(p)); }
OCTAVO_FN Pairs pairs_broadcast(const uint16_t* p) { return bit_cast_<Pairs>(bytes_broadcast4(p)); }
OCTAVO_FN I32 pairs_bits(Pairs a) {
  return lanes_<I32>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[2 * i + 1]) << 16 | a.v[2 * i]); });
}

OCTAVO_FN I32 dot_u7(I32 acc, Bytes u, Bytes s) {
  for (int i = 0; i < 16; ++i)
    for (int j = 4 * i; j < 4 * i + 4; ++j) acc.v[i] += static_cast<int32_t>(u.v[j]) * static_cast<int8_t>(s.v[j]);
  return acc;
}
constexpr bool kBiasedDot = true;
OCTAVO_FN I32 dot_biased(I32 acc, Bytes u, Bytes s) { return dot_u7(acc, u, s); }
OCTAVO_FN I32 dot_i16(I32 acc, I32 a, I32 b) {
  for (int i = 0; i < 16; ++i)
    acc.v[i] += static_cast<int16_t>(a.v[i]) * static_cast<int16_t>(b.v[i]) + (a.v[i] >> 16) * (b.v[i] >> 16);
  return acc;
}
OCTAVO_FN F32 dot_bf16(F32 acc, Pairs a, Pairs b) {
  for (int i = 0; i < 16; ++i) {
    acc.v[i] = acc.v[i] + bf16_widen_(a.v[2 * i]) * bf16_widen_(b.v[2 * i]);
    acc.v[i] = acc.v[i] + bf16_widen_(a.v[2 * i + 1]) * bf16_widen_(b.v[2 * i + 1]);
  }
  return acc;
}

OCTAVO_FN void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace
}  // namespace octavo::OCTAVO_ISA
