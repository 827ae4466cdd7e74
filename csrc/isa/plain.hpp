// What instruction sets do alike that have no instruction of their own for it, in terms of their other functions: included at their end.
// avx512.hpp documents it.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

OCTAVO_FN F32 f32_scale_by_power(F32 a, F32 n) { return f32_mul(a, f32_of_bits(i32_shl<23>(i32_add(i32_from_f32(n), i32_set1(127))))); }
OCTAVO_FN Pairs pairs_round(F32 a, F32 b) {
  uint16_t both[32];
  bf16_store(both, a);
  bf16_store(both + 16, b);
  return pairs_load(both);
}
OCTAVO_FN void f32_largest_two4(const F32 (&larger)[4], const F32 (&smaller)[4], float* largest, float* second) {
  for (int i = 0; i < 4; ++i) {
    largest[i] = f32_reduce_max(larger[i]);
    const F32 top = f32_set1(largest[i]);
    const uint32_t below = f32_mask_less(larger[i], top);
    const bool alone = __builtin_popcount(below) == kLanes - 1;
    second[i] = alone ? f32_reduce_max(f32_max(f32_select_less(larger[i], top, larger[i], f32_zero()), smaller[i])) : largest[i];
  }
}
OCTAVO_FN void i32_reduce_add4(I32 a, I32 b, I32 c, I32 d, int32_t* out) {
  out[0] = i32_reduce_add(a);
  out[1] = i32_reduce_add(b);
  out[2] = i32_reduce_add(c);
  out[3] = i32_reduce_add(d);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
