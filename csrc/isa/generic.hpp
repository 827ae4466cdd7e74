// Vectors in plain C++ with GCC's and Clang's vector extension, for any little-endian CPU: four parts of 16 bytes, which every 64-bit CPU
// of today has registers for. What each function does is said in avx512.hpp. Products and sums are rounded apart (f32_fma is not fused): a
// fused one would be a library call on some CPUs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::OCTAVO_ISA {
namespace {

#define OCTAVO_FN static inline __attribute__((always_inline, unused))

using Floats = float __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));
using Shorts = int16_t __attribute__((vector_size(16)));
using UnsignedShorts = uint16_t __attribute__((vector_size(16)));
using Chars = uint8_t __attribute__((vector_size(16)));

struct F32 {
  Floats q[4];
};
struct I32 {
  Ints q[4];
};
struct Bytes {
  Chars q[4];
};
struct Pairs {
  UnsignedShorts q[4];
};

constexpr size_t kLanes = 16;
constexpr size_t kRowsPerPass = 2;  // of matrix kernels, as registers allow
constexpr int kRowsAtOnce = 1;

// The vector whose part i is fn(i).
template <typename V, typename Fn>
OCTAVO_FN V parts_(Fn fn) {
  return {{fn(0), fn(1), fn(2), fn(3)}};
}
#define OCTAVO_PARTS(V, expression) parts_<V>([&](int i) __attribute__((always_inline)) { return expression; })

template <typename V>
OCTAVO_FN V load_(const void* p) {
  V r;
  __builtin_memcpy(&r, p, sizeof r);
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
  const Floats part = {x, x, x, x};
  return {{part, part, part, part}};
}
OCTAVO_FN F32 f32_zero() { return f32_set1(0.0f); }
OCTAVO_FN F32 f32_load(const float* p) { return load_<F32>(p); }
OCTAVO_FN F32 f32_load_partial(const float* p, size_t n) {
  float lanes[kLanes] = {};
  for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load_<F32>(lanes);
}
OCTAVO_FN void f32_store(float* p, F32 a) { __builtin_memcpy(p, &a, 64); }
OCTAVO_FN void f32_store_partial(float* p, F32 a, size_t n) {
  float lanes[kLanes];
  f32_store(lanes, a);
  for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
}
OCTAVO_FN F32 f32_add(F32 a, F32 b) { return OCTAVO_PARTS(F32, a.q[i] + b.q[i]); }
OCTAVO_FN F32 f32_sub(F32 a, F32 b) { return OCTAVO_PARTS(F32, a.q[i] - b.q[i]); }
OCTAVO_FN F32 f32_mul(F32 a, F32 b) { return OCTAVO_PARTS(F32, a.q[i] * b.q[i]); }
OCTAVO_FN F32 f32_div(F32 a, F32 b) { return OCTAVO_PARTS(F32, a.q[i] / b.q[i]); }
// Where a comparison holds, yes, elsewhere no.
OCTAVO_FN Floats choose_(Ints mask, Floats yes, Floats no) { return (Floats)((mask & (Ints)yes) | (~mask & (Ints)no)); }
OCTAVO_FN F32 f32_min(F32 a, F32 b) { return OCTAVO_PARTS(F32, choose_(a.q[i] < b.q[i], a.q[i], b.q[i])); }
OCTAVO_FN F32 f32_max(F32 a, F32 b) { return OCTAVO_PARTS(F32, choose_(a.q[i] > b.q[i], a.q[i], b.q[i])); }
OCTAVO_FN F32 f32_abs(F32 a) { return OCTAVO_PARTS(F32, (Floats)((Ints)a.q[i] & 0x7FFFFFFF)); }
OCTAVO_FN F32 f32_sqrt(F32 a) {
  float lanes[kLanes];
  f32_store(lanes, a);
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = __builtin_sqrtf(lanes[i]);
  return f32_load(lanes);
}
// Adding and taking away 2^23 rounds half to even; from 2^23 on all floats are whole.
OCTAVO_FN Floats round_(Floats x) {
  const Floats big = (Floats)(((Ints)x & INT32_MIN) | 0x4B000000);
  return choose_((Floats)((Ints)x & 0x7FFFFFFF) < 8388608.0f, (x + big) - big, x);
}
OCTAVO_FN F32 f32_round(F32 a) { return OCTAVO_PARTS(F32, round_(a.q[i])); }
OCTAVO_FN F32 f32_fma(F32 a, F32 b, F32 c) { return OCTAVO_PARTS(F32, a.q[i] * b.q[i] + c.q[i]); }
OCTAVO_FN F32 f32_fnma(F32 a, F32 b, F32 c) { return OCTAVO_PARTS(F32, c.q[i] - a.q[i] * b.q[i]); }
OCTAVO_FN F32 f32_keep_first(F32 a, size_t n, F32 rest) {
  const int32_t count = static_cast<int32_t>(n);
  return OCTAVO_PARTS(F32, choose_(Ints{4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3} < count, a.q[i], rest.q[i]));
}
OCTAVO_FN F32 f32_select_less(F32 a, F32 b, F32 yes, F32 no) { return OCTAVO_PARTS(F32, choose_(a.q[i] < b.q[i], yes.q[i], no.q[i])); }
OCTAVO_FN uint32_t f32_mask_less(F32 a, F32 b) {
  float lanes[2][kLanes];
  f32_store(lanes[0], a);
  f32_store(lanes[1], b);
  uint32_t mask = 0;
  for (size_t i = 0; i < kLanes; ++i) mask |= static_cast<uint32_t>(lanes[0][i] < lanes[1][i]) << i;
  return mask;
}

OCTAVO_FN float f32_reduce_add(F32 a) {
  const Floats x = (a.q[0] + a.q[2]) + (a.q[1] + a.q[3]);
  return (x[0] + x[2]) + (x[1] + x[3]);
}
OCTAVO_FN float f32_reduce_max(F32 a) {
  float lanes[kLanes], most;
  f32_store(lanes, a);
  most = lanes[0];
  for (size_t i = 1; i < kLanes; ++i) most = lanes[i] > most ? lanes[i] : most;
  return most;
}

OCTAVO_FN I32 i32_set1(int32_t x) {
  const Ints part = {x, x, x, x};
  return {{part, part, part, part}};
}
OCTAVO_FN I32 i32_zero() { return i32_set1(0); }
OCTAVO_FN I32 i32_add(I32 a, I32 b) { return OCTAVO_PARTS(I32, a.q[i] + b.q[i]); }
OCTAVO_FN I32 i32_and(I32 a, I32 b) { return OCTAVO_PARTS(I32, a.q[i] & b.q[i]); }
OCTAVO_FN I32 i32_or(I32 a, I32 b) { return OCTAVO_PARTS(I32, a.q[i] | b.q[i]); }
template <int N>
OCTAVO_FN I32 i32_shl(I32 a) {
  return OCTAVO_PARTS(I32, a.q[i] << N);
}
template <int N>
OCTAVO_FN I32 i32_sra(I32 a) {
  return OCTAVO_PARTS(I32, a.q[i] >> N);
}
OCTAVO_FN I32 i32_load_shifted(const uint8_t* p, int n) {
  const I32 a = load_<I32>(p);
  return OCTAVO_PARTS(I32, a.q[i] >> n);
}
OCTAVO_FN void i32_store(int32_t* p, I32 a) { __builtin_memcpy(p, &a, 64); }
OCTAVO_FN void i32_store_i8(int8_t* p, I32 a) {
  int32_t lanes[kLanes];
  i32_store(lanes, a);
  for (size_t i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(lanes[i] < -128 ? -128 : lanes[i] > 127 ? 127 : lanes[i]);
}
OCTAVO_FN int32_t i32_reduce_add(I32 a) {
  const Ints x = (a.q[0] + a.q[1]) + (a.q[2] + a.q[3]);
  return x[0] + x[1] + x[2] + x[3];
}
// 16 numbers of another type.
template <typename T>
OCTAVO_FN I32 i32_from_(const T* p) {
  return OCTAVO_PARTS(I32, (Ints{p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]}));
}
OCTAVO_FN I32 i32_from_u8(const uint8_t* p) { return i32_from_(p); }
OCTAVO_FN I32 i32_from_i8(const int8_t* p) { return i32_from_(p); }
OCTAVO_FN F32 f32_from_i32(I32 a) { return OCTAVO_PARTS(F32, __builtin_convertvector(a.q[i], Floats)); }
OCTAVO_FN Ints whole_(Floats x) {  // out of range and NaN: INT32_MIN, as x86 has it
  const Ints inside = (x >= -2147483648.0f) & (x < 2147483648.0f);
  return (__builtin_convertvector((Floats)(inside & (Ints)x), Ints) & inside) | (~inside & INT32_MIN);
}
OCTAVO_FN I32 i32_from_f32(F32 a) { return OCTAVO_PARTS(I32, whole_(round_(a.q[i]))); }
OCTAVO_FN I32 bits_of(F32 a) { return OCTAVO_PARTS(I32, (Ints)a.q[i]); }
OCTAVO_FN F32 f32_of_bits(I32 a) { return OCTAVO_PARTS(F32, (Floats)a.q[i]); }

OCTAVO_FN Floats f16_widen_(Ints h) {
  const Ints magnitude = (h & 0x7FFF) << 13;
  const Floats finite = (Floats)magnitude * bit_cast_<float>(0x77800000);  // * 2^112, exactly
  const Floats value = choose_(magnitude >= 0x7C00 << 13, (Floats)(magnitude | 0x7F800000), finite);
  return (Floats)((Ints)value | (h >> 15 << 31));
}
OCTAVO_FN F32 f16_load(const uint16_t* p) {
  const I32 h = i32_from_(p);
  return OCTAVO_PARTS(F32, f16_widen_(h.q[i]));
}
OCTAVO_FN F32 e4m3_load(const uint8_t* p) {
  const I32 code = i32_from_u8(p);
  return OCTAVO_PARTS(F32, f16_widen_((code.q[i] & 0x80) << 8 | (code.q[i] & 0x7F) << 7));
}
OCTAVO_FN F32 e5m2_load(const uint8_t* p) {
  const I32 code = i32_from_u8(p);
  return OCTAVO_PARTS(F32, f16_widen_(code.q[i] << 8));
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
OCTAVO_FN void f16_store_partial(uint16_t* p, F32 a, size_t n) {
  float lanes[kLanes];
  f32_store(lanes, a);
  for (size_t i = 0; i < n; ++i) p[i] = f16_round_(lanes[i]);
}
OCTAVO_FN void f16_store(uint16_t* p, F32 a) { f16_store_partial(p, a, 16); }
OCTAVO_FN F32 bf16_load(const uint16_t* p) {
  const I32 h = i32_from_(p);
  return OCTAVO_PARTS(F32, (Floats)(h.q[i] << 16));
}
OCTAVO_FN uint16_t bf16_round_(float x) {
  const uint32_t bits = bit_cast_<uint32_t>(x);
  return static_cast<uint16_t>(x == x ? (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 : (bits >> 16) | 0x40);
}
OCTAVO_FN void bf16_store_partial(uint16_t* p, F32 a, size_t n) {
  float lanes[kLanes];
  f32_store(lanes, a);
  for (size_t i = 0; i < n; ++i) p[i] = bf16_round_(lanes[i]);
}
OCTAVO_FN void bf16_store(uint16_t* p, F32 a) { bf16_store_partial(p, a, 16); }
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

OCTAVO_FN Bytes bytes_load(const void* p) { return load_<Bytes>(p); }
OCTAVO_FN void bytes_store(void* p, Bytes a) { __builtin_memcpy(p, &a, 64); }
OCTAVO_FN Bytes bytes_set1(uint8_t x) {
  const Chars part = Chars{} + x;
  return {{part, part, part, part}};
}
OCTAVO_FN Bytes bytes_and(Bytes a, Bytes b) { return OCTAVO_PARTS(Bytes, a.q[i] & b.q[i]); }
OCTAVO_FN Bytes bytes_or_and(Bytes a, Bytes b, Bytes mask) { return OCTAVO_PARTS(Bytes, a.q[i] | (b.q[i] & mask.q[i])); }
template <int N>
OCTAVO_FN Bytes bytes_shift(Bytes a) {
  if constexpr (N >= 0)
    return OCTAVO_PARTS(Bytes, (Chars)((UnsignedShorts)a.q[i] << N));
  else
    return OCTAVO_PARTS(Bytes, (Chars)((UnsignedShorts)a.q[i] >> -N));
}
OCTAVO_FN Bytes bytes_table16(const void* p) {
  const Chars part = load_<Chars>(p);
  return {{part, part, part, part}};
}
OCTAVO_FN Bytes bytes_lookup(Bytes table, Bytes index) {
  uint8_t entries[64], bytes[64];
  bytes_store(entries, table);
  bytes_store(bytes, index);
  for (uint8_t& byte : bytes) byte = entries[byte];
  return bytes_load(bytes);
}
OCTAVO_FN Bytes bytes_broadcast4(const void* p) {
  const int32_t x = load_<int32_t>(p);
  const Chars part = (Chars)Ints{x, x, x, x};
  return {{part, part, part, part}};
}
OCTAVO_FN Pairs pairs_load(const uint16_t* p) { return load_<Pairs>(p); }
OCTAVO_FN Pairs pairs_broadcast(const uint16_t* p) { return bit_cast_<Pairs>(bytes_broadcast4(p)); }
OCTAVO_FN void pairs_store(uint16_t* p, Pairs a) { __builtin_memcpy(p, &a, sizeof a); }
OCTAVO_FN I32 pairs_bits(Pairs a) { return OCTAVO_PARTS(I32, (Ints)a.q[i]); }

OCTAVO_FN Ints sum_of_halves_(Shorts a) { return (((Ints)a << 16) >> 16) + ((Ints)a >> 16); }
// Even and odd bytes apart: each product fits 16 bits.
OCTAVO_FN Ints dot_(Chars u, Chars s) {
  const Shorts even = (Shorts)((UnsignedShorts)u & 255) * (((Shorts)s << 8) >> 8);
  const Shorts odd = (Shorts)((UnsignedShorts)u >> 8) * ((Shorts)s >> 8);
  return sum_of_halves_(even) + sum_of_halves_(odd);
}
OCTAVO_FN I32 dot_u7(I32 acc, Bytes u, Bytes s) { return OCTAVO_PARTS(I32, acc.q[i] + dot_(u.q[i], s.q[i])); }
constexpr bool kBiasedDot = true;
OCTAVO_FN I32 dot_biased(I32 acc, Bytes u, Bytes s) { return dot_u7(acc, u, s); }
OCTAVO_FN Ints dot_pair_(Ints a, Ints b) { return ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16); }
OCTAVO_FN I32 dot_i16(I32 acc, I32 a, I32 b) { return OCTAVO_PARTS(I32, acc.q[i] + dot_pair_(a.q[i], b.q[i])); }
OCTAVO_FN Floats dot_bf16_(Floats acc, Ints a, Ints b) {
  acc = acc + (Floats)(a << 16) * (Floats)(b << 16);
  return acc + (Floats)(a >> 16 << 16) * (Floats)(b >> 16 << 16);
}
OCTAVO_FN F32 dot_bf16(F32 acc, Pairs a, Pairs b) { return OCTAVO_PARTS(F32, dot_bf16_(acc.q[i], (Ints)a.q[i], (Ints)b.q[i])); }

OCTAVO_FN void prefetch(const void* p) { __builtin_prefetch(p); }
OCTAVO_FN void prefetch_once(const void* p) { __builtin_prefetch(p, 0, 0); }

}  // namespace
}  // namespace octavo::OCTAVO_ISA

#include "isa/plain.hpp"
