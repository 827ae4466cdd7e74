// Activation rows: quantizing and rounding fp32 values into q8 and bf16 buffers.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// Where a group of a q8 row goes.
struct Q8Place {
  Q8Group* group;
  float* outlier;
  uint8_t* place;
};
OCTAVO_FN Q8Place q8_place(const Rows& out, size_t r, size_t g) {
  return {q8_row(out, r) + g, q8_outliers(out, r) + g, q8_places(out, r) + g};
}

// The largest lanes of N vectors, and the sums of lanes: four at a time, which some instruction sets do in fewer steps. A vector meets the
// same operations whatever N is, which matters where there are NaNs.
template <size_t N>
OCTAVO_FN void reduce_max(const F32 (&a)[N], float (&out)[N]) {
  float four[4];
  f32_reduce_max4(a[0], a[N > 1 ? 1 : 0], a[N > 2 ? 2 : 0], a[N > 3 ? 3 : 0], four);
  for (size_t i = 0; i < N; ++i) out[i] = four[i];
}
template <size_t N>
OCTAVO_FN void reduce_add(const I32 (&a)[N], int32_t (&out)[N]) {
  int32_t four[4];
  i32_reduce_add4(a[0], a[N > 1 ? 1 : 0], a[N > 2 ? 2 : 0], a[N > 3 ? 3 : 0], four);
  for (size_t i = 0; i < N; ++i) out[i] = four[i];
}

// The place of the one magnitude among a and b, 16 of a group's 32 each, that is more than kOutlierRatio times every other; -1 if none is.
// next: the largest magnitude below the largest.
OCTAVO_FN int find_outlier(F32 a, F32 b, float largest, float next) {
  const uint32_t top = f32_mask_equal(a, f32_set1(largest)) | f32_mask_equal(b, f32_set1(largest)) << 16;
  const bool apart = largest > kOutlierRatio * next && (top & (top - 1)) == 0;
  return apart ? __builtin_ctz(top) : -1;
}

// Quantizes N groups, 1 … 4, of 32 values, each given as two vectors (absent values as 0): codes are round(x * (127 / absmax)), ties to
// even. Without branches: one group in ten has an outlier, and none can be foretold.
template <size_t N>
OCTAVO_FN void quantize_groups(const F32 (&x)[N][2], const Q8Place (&to)[N]) {
  F32 size[N][2], most[N];
  float largest[N], next[N], absmax[N], inverse[N], scale[N];
  int at[N];
  for (size_t i = 0; i < N; ++i) {
    for (size_t h = 0; h < 2; ++h) size[i][h] = f32_abs(x[i][h]);
    most[i] = f32_max(size[i][0], size[i][1]);
  }
  reduce_max(most, largest);
  for (size_t i = 0; i < N; ++i) {
    const F32 top = f32_set1(largest[i]), zero = f32_zero();
    most[i] = f32_max(f32_select_less(size[i][0], top, size[i][0], zero), f32_select_less(size[i][1], top, size[i][1], zero));
  }
  reduce_max(most, next);
  for (size_t i = 0; i < N; ++i) {
    at[i] = find_outlier(size[i][0], size[i][1], largest[i], next[i]);
    absmax[i] = at[i] < 0 ? largest[i] : next[i];
  }
  for (size_t i = 0; i < N; ++i) {
    inverse[i] = absmax[i] > 0.0f ? 127.0f / absmax[i] : 0.0f;
    scale[i] = absmax[i] / 127.0f;
  }
  I32 codes[2][N];
  for (size_t i = 0; i < N; ++i) {
    float values[33];
    const F32 limit = f32_set1(at[i] < 0 ? __builtin_inff() : absmax[i]);  // only the outlier is beyond it
    for (size_t h = 0; h < 2; ++h) {
      f32_store(values + 16 * h, x[i][h]);
      codes[h][i] = i32_from_f32(f32_select_less(limit, size[i][h], f32_zero(), x[i][h]) * f32_set1(inverse[i]));
      i32_store_i8(to[i].group->codes + 16 * h, codes[h][i]);
    }
    values[32] = 0.0f;
    *to[i].outlier = values[at[i] < 0 ? 32 : at[i]];
    *to[i].place = static_cast<uint8_t>(at[i] < 0 ? 0 : at[i]);
  }
  int32_t sums[2][N];
  for (size_t h = 0; h < 2; ++h) reduce_add(codes[h], sums[h]);
  for (size_t i = 0; i < N; ++i) {
    const int32_t sum = sums[0][i] + sums[1][i];
    Q8Group& group = *to[i].group;
    group.scale = scale[i];
    group.scaled_sum = scale[i] * static_cast<float>(sum);
    for (size_t h = 0; h < 2; ++h) group.half_sum[h] = static_cast<int16_t>(sums[h][i]);
    group.biased = -128 * sum;
  }
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
    quantize_groups<1>({{a, b}}, {q8_place(out, r, column / kQ8Group)});
  } else if (out.kind == BufferKind::kBF16) {
    bf16_store(bf16_row(out, r) + column, a);
    bf16_store(bf16_row(out, r) + column + kLanes, b);
  } else {
    store_columns(f32_row(out, r), column, out.columns, a);
    store_columns(f32_row(out, r), column + kLanes, out.columns, b);
  }
}

// Stores columns [first, first + width) of row r of out, whatever its kind: sixteen from first + i on are value(i), past the end 0. first
// is a multiple of 32.
template <typename Value>
OCTAVO_FN void store_columns_of(const Rows& out, size_t r, size_t first, size_t width, Value value) {
  size_t i = 0;
  if (out.kind == BufferKind::kQ8) {
    for (; i + 4 * kQ8Group <= width; i += 4 * kQ8Group) {
      F32 x[4][2];
      Q8Place to[4];
      for (size_t g = 0; g < 4; ++g) {
        for (size_t h = 0; h < 2; ++h) x[g][h] = value(i + 32 * g + 16 * h);
        to[g] = q8_place(out, r, (first + i) / kQ8Group + g);
      }
      quantize_groups<4>(x, to);
    }
  }
  for (; i < width; i += 32) store_group(out, r, first + i, value(i), value(i + kLanes));
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
