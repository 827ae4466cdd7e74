// Activation rows: quantizing and rounding fp32 values into q8 and bf16 buffers, and reading them back.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// The largest of 32 magnitudes, and the largest of those below it.
struct Extremes {
  float largest, next;
};
OCTAVO_FN Extremes extremes(F32 a, F32 b) {
  const float largest = f32_reduce_max(f32_max(a, b));
  const F32 top = f32_set1(largest), zero = f32_zero();
  return {largest, f32_reduce_max(f32_max(f32_select_less(a, top, a, zero), f32_select_less(b, top, b, zero)))};
}

// Takes the one value of that magnitude out of a and b, which both are 16 of the group's 32; false if there are several.
[[maybe_unused]] bool take_outlier(F32& a, F32& b, float magnitude, Q8Group* group) {
  float values[32];
  f32_store(values, a);
  f32_store(values + 16, b);
  int32_t count = 0;
  for (int32_t i = 0; i < 32; ++i) {
    if (__builtin_fabsf(values[i]) != magnitude) continue;
    group->place = i;
    ++count;
  }
  if (count != 1) return false;
  group->outlier = values[group->place];
  values[group->place] = 0.0f;
  a = f32_load(values);
  b = f32_load(values + 16);
  return true;
}

// Quantizes 32 values, given as two vectors (absent ones as 0), into *group: codes are round(x * (127 / absmax)), ties to even.
OCTAVO_FN void quantize_group(F32 a, F32 b, Q8Group* group) {
  const Extremes found = extremes(f32_abs(a), f32_abs(b));
  float absmax = found.largest;
  group->outlier = 0.0f;
  group->place = 0;
  if (found.largest > kOutlierRatio * found.next && take_outlier(a, b, found.largest, group)) absmax = found.next;
  const F32 inverse = f32_set1(absmax > 0.0f ? 127.0f / absmax : 0.0f);
  const I32 ca = i32_from_f32(a * inverse), cb = i32_from_f32(b * inverse);
  i32_store_i8(group->codes, ca);
  i32_store_i8(group->codes + 16, cb);
  const int32_t sum_a = i32_reduce_add(ca), sum_b = i32_reduce_add(cb);
  group->scale = absmax / 127.0f;
  group->scaled_sum = group->scale * static_cast<float>(sum_a + sum_b);
  group->half_sum[0] = static_cast<int16_t>(sum_a);
  group->half_sum[1] = static_cast<int16_t>(sum_b);
  group->biased = -128 * (sum_a + sum_b);
}

// Sixteen columns of a row of ``columns`` floats, from ``column`` on; past its end they read as 0 and are not written.
OCTAVO_FN F32 load_columns(const float* row, size_t column, size_t columns) {
  if (column + kLanes <= columns) return f32_load(row + column);
  return column < columns ? f32_load_partial(row + column, columns - column) : f32_zero();
}
OCTAVO_FN void store_columns(float* row, size_t column, size_t columns, F32 a) {
  if (column + kLanes <= columns)
    f32_store(row + column, a);
  else if (column < columns)
    f32_store_partial(row + column, a, columns - column);
}

// Stores columns [column, column + 32) of row r of out, whatever its kind; column is a multiple of 32, values past the end are 0.
OCTAVO_FN void store_group(const Rows& out, size_t r, size_t column, F32 a, F32 b) {
  if (out.kind == BufferKind::kQ8) {
    quantize_group(a, b, q8_row(out, r) + column / kQ8Group);
  } else if (out.kind == BufferKind::kBF16) {
    bf16_store(bf16_row(out, r) + column, a);
    bf16_store(bf16_row(out, r) + column + kLanes, b);
  } else {
    store_columns(f32_row(out, r), column, out.columns, a);
    store_columns(f32_row(out, r), column + kLanes, out.columns, b);
  }
}

// Stores values [columns] as row r of out, whatever its kind.
[[maybe_unused]] void store_row(const Rows& out, size_t r, const float* values) {
  const size_t n = out.columns;
  for (size_t i = 0; i < n; i += 32) store_group(out, r, i, load_columns(values, i, n), load_columns(values, i + kLanes, n));
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
