// Functions of vectors that every instruction set computes with the same operations.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// e^x within 2 ulp; 0 below -87.3 (results never are subnormal), inf above 88.72, NaN stays.
// x = n ln 2 + r with |r| <= ln 2 / 2 (Cody and Waite 1980), then the Taylor polynomial of degree 7 and a shift of the exponent by n.
OCTAVO_FN F32 f32_exp(F32 x) {
  constexpr float kTaylor[] = {1.0f / 5040.0f, 1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f};
  const F32 n = f32_min(f32_set1(127.0f), f32_max(f32_set1(-126.0f), f32_round(f32_mul(x, f32_set1(1.44269504f)))));
  F32 r = f32_fnma(n, f32_set1(0.693359375f), x);
  r = f32_fnma(n, f32_set1(-2.12194440e-4f), r);
  F32 p = f32_set1(kTaylor[0]);
  for (int i = 1; i < 8; ++i) p = f32_fma(p, r, f32_set1(kTaylor[i]));
  F32 y = f32_mul(p, f32_of_bits(i32_shl<23>(i32_add(i32_from_f32(n), i32_set1(127)))));
  y = f32_select_less(x, f32_set1(-87.3f), f32_zero(), y);
  return f32_select_less(f32_set1(88.72f), x, f32_set1(__builtin_inff()), y);
}

// tanh(x) = 1 - 2 / (e^2x + 1); absolute error below 2e-7.
OCTAVO_FN F32 f32_tanh(F32 x) {
  const F32 e = f32_exp(f32_add(x, x));
  return f32_sub(f32_set1(1.0f), f32_div(f32_set1(2.0f), f32_add(e, f32_set1(1.0f))));
}

OCTAVO_FN F32 f32_silu(F32 x) { return f32_div(x, f32_add(f32_set1(1.0f), f32_exp(f32_sub(f32_zero(), x)))); }

// GELU, tanh form (Hendrycks and Gimpel 2016): x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
OCTAVO_FN F32 f32_gelu_tanh(F32 x) {
  const F32 cube = f32_mul(f32_mul(x, x), x);
  const F32 inner = f32_mul(f32_set1(0.7978845608f), f32_fma(f32_set1(0.044715f), cube, x));
  return f32_mul(f32_mul(f32_set1(0.5f), x), f32_add(f32_set1(1.0f), f32_tanh(inner)));
}

OCTAVO_FN F32 f32_activate(Activation activation, F32 x) {
  return activation == Activation::kSilu ? f32_silu(x) : f32_gelu_tanh(x);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
