// Functions of vectors that every instruction set computes with the same operations.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

OCTAVO_FN F32 operator+(F32 a, F32 b) {
  return f32_add(a, b);
}
OCTAVO_FN F32 operator-(F32 a, F32 b) {
  return f32_sub(a, b);
}
OCTAVO_FN F32 operator*(F32 a, F32 b) {
  return f32_mul(a, b);
}
OCTAVO_FN F32 operator/(F32 a, F32 b) {
  return f32_div(a, b);
}

OCTAVO_FN float f32_first(F32 a) {
  float lanes[kLanes];
  f32_store(lanes, a);
  return lanes[0];
}

// Lanes [begin, end) of a, the others filled; 0 <= begin <= end <= 16.
OCTAVO_FN F32 f32_keep(F32 a, size_t begin, size_t end, F32 fill) {
  return f32_keep_first(fill, begin, f32_keep_first(a, end, fill));
}

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

// e^x of one number: what a lane of f32_exp gives, bit for bit.
OCTAVO_FN float exp_scalar(float x) {
  return f32_first(f32_exp(f32_set1(x)));
}

// 2^x for x <= 127 within 2^-18, which rounding to bf16 hides; 1 at 0, and what bf16 rounds to 0 below -127. NaN stays. Half the work of
// f32_exp. 2^r on |r| <= 1/2 is the polynomial of degree 4 with the least relative error among those that are 1 at 0, times 2^n.
OCTAVO_FN F32 f32_exp2_rough(F32 x) {
  constexpr float kNear[] = {0.009582853f, 0.055906426f, 0.240240991f, 0.693124175f, 1.0f};
  x = f32_max(f32_set1(-127.0f), x);
  const F32 n = f32_round(x), r = x - n;
  F32 p = f32_set1(kNear[0]);
  for (int i = 1; i < 5; ++i) p = f32_fma(p, r, f32_set1(kNear[i]));
  return f32_scale_by_power(p, n);
}

// tanh(x) within 4 ulp: the odd polynomial of Cephes' tanhf for |x| < 0.625, beyond it 1 - 2 / (e^2|x| + 1) with the sign of x.
OCTAVO_FN F32 f32_tanh(F32 x) {
  constexpr float kOdd[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f};
  const F32 size = f32_abs(x), square = x * x, one = f32_set1(1.0f);
  F32 p = f32_set1(kOdd[0]);
  for (int i = 1; i < 5; ++i) p = f32_fma(p, square, f32_set1(kOdd[i]));
  const F32 near = f32_fma(p * square, x, x);
  const F32 far = one - f32_set1(2.0f) / (f32_exp(size + size) + one);
  return f32_select_less(size, f32_set1(0.625f), near, f32_select_less(x, f32_zero(), f32_zero() - far, far));
}

// x / (1 + e^-z): x * sigmoid(z). Rough: within 2^-18, which rounding to int8 or bf16 hides.
template <bool kRough>
OCTAVO_FN F32 f32_times_sigmoid(F32 x, F32 minus_z) {
  const F32 power = kRough ? f32_exp2_rough(f32_min(f32_set1(127.0f), minus_z * f32_set1(1.44269504f))) : f32_exp(minus_z);
  return x / (f32_set1(1.0f) + power);
}

// SiLU: x * sigmoid(x). GELU by its tanh form (Hendrycks and Gimpel 2016): x / 2 * (1 + tanh u) = x * sigmoid(2 u),
// u = sqrt(2 / pi) * (x + 0.044715 x^3).
template <bool kRough>
OCTAVO_FN F32 f32_activate(Activation activation, F32 x) {
  if (activation == Activation::kSilu) return f32_times_sigmoid<kRough>(x, f32_zero() - x);
  return f32_times_sigmoid<kRough>(x, f32_set1(-1.5957691216f) * f32_fma(f32_set1(0.044715f) * x * x, x, x));
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
