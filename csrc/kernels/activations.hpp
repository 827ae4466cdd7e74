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

// The place of the one value among a and b, 16 of a group's 32 each, that is larger than kOutlierRatio times every other; -1 if none is.
OCTAVO_FN int find_outlier(F32 a, F32 b, const Extremes& found) {
  const uint32_t largest = f32_mask_equal(f32_abs(a), f32_set1(found.largest)) | f32_mask_equal(f32_abs(b), f32_set1(found.largest)) << 16;
  const bool apart = found.largest > kOutlierRatio * found.next && (largest & (largest - 1)) == 0;
  return apart ? __builtin_ctz(largest) : -1;
}

// Quantizes 32 values, given as two vectors (absent ones as 0), into *group: codes are round(x * (127 / absmax)), ties to even.
// Without branches: one group in ten has an outlier, and none can be foretold.
OCTAVO_FN void quantize_group(F32 a, F32 b, Q8Group* group, float* outlier, uint8_t* place) {
  const Extremes found = extremes(f32_abs(a), f32_abs(b));
  const int at = find_outlier(a, b, found);
  float values[33];
  f32_store(values, a);
  f32_store(values + 16, b);
  values[32] = 0.0f;
  *outlier = values[at < 0 ? 32 : at];
  *place = static_cast<uint8_t>(at < 0 ? 0 : at);
  const float absmax = at < 0 ? found.largest : found.next;
  const F32 most = f32_set1(at < 0 ? __builtin_inff() : absmax), inverse = f32_set1(absmax > 0.0f ? 127.0f / absmax : 0.0f);
  const I32 ca = i32_from_f32(f32_select_less(most, f32_abs(a), f32_zero(), a) * inverse);
  const I32 cb = i32_from_f32(f32_select_less(most, f32_abs(b), f32_zero(), b) * inverse);
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
    const size_t g = column / kQ8Group;
    quantize_group(a, b, q8_row(out, r) + g, q8_outliers(out, r) + g, q8_places(out, r) + g);
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
