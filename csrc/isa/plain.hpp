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
OCTAVO_FN void f32_reduce_max4(F32 a, F32 b, F32 c, F32 d, float* out) {
  out[0] = f32_reduce_max(a);
  out[1] = f32_reduce_max(b);
  out[2] = f32_reduce_max(c);
  out[3] = f32_reduce_max(d);
}
OCTAVO_FN void i32_reduce_add4(I32 a, I32 b, I32 c, I32 d, int32_t* out) {
  out[0] = i32_reduce_add(a);
  out[1] = i32_reduce_add(b);
  out[2] = i32_reduce_add(c);
  out[3] = i32_reduce_add(d);
}
OCTAVO_FN size_t list_nonzero(const float* x, size_t n, uint16_t* list) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    list[count] = static_cast<uint16_t>(i);
    count += x[i] != 0.0f;
  }
  return count;
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
