// Activation rows: quantizing and rounding fp32 values into q8 and bf16 buffers.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

OCTAVO_FN size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

template <size_t N>
struct Count {
  static constexpr size_t value = N;
};

// fn(Count<n>) for n in 1 … N.
template <size_t N, typename Fn>
OCTAVO_FN void with_count(size_t n, Fn fn) {
  if (n == N) return fn(Count<N>{});
  if constexpr (N > 1) with_count<N - 1>(n, fn);
}

// Where a group of a q8 row goes.
struct Q8Place {
  Q8Group* group;
  float* outlier;
  uint8_t* place;
};
OCTAVO_FN Q8Place q8_place(const Rows& out, size_t r, size_t g) {
  return {q8_row(out, r) + g, q8_outliers(out, r) + g, q8_places(out, r) + g};
}

// A number for each of four groups.
typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourInts __attribute__((vector_size(16)));

// Each group's part of the four, behind its codes: its row of a transposed matrix.
template <size_t N>
OCTAVO_FN void store_sums(Four scale, Four scaled_sum, FourInts half_sums, FourInts biased, const Q8Place (&to)[N]) {
  static_assert(sizeof(Q8Group) == offsetof(Q8Group, scale) + 16 && offsetof(Q8Group, half_sum) == offsetof(Q8Group, scale) + 8);
  FourInts a, b;
  __builtin_memcpy(&a, &scale, 16);
  __builtin_memcpy(&b, &scaled_sum, 16);
  const FourInts low[2] = {__builtin_shuffle(a, b, FourInts{0, 4, 1, 5}), __builtin_shuffle(half_sums, biased, FourInts{0, 4, 1, 5})};
  const FourInts high[2] = {__builtin_shuffle(a, b, FourInts{2, 6, 3, 7}), __builtin_shuffle(half_sums, biased, FourInts{2, 6, 3, 7})};
  const FourInts rows[4] = {
      __builtin_shuffle(low[0], low[1], FourInts{0, 1, 4, 5}), __builtin_shuffle(low[0], low[1], FourInts{2, 3, 6, 7}),
      __builtin_shuffle(high[0], high[1], FourInts{0, 1, 4, 5}), __builtin_shuffle(high[0], high[1], FourInts{2, 3, 6, 7})};
  for (size_t i = 0; i < N; ++i) __builtin_memcpy(&to[i].group->scale, &rows[i], 16);
}

// Quantizes N groups, 1 … 4, of 32 values, each given as two vectors (absent values as 0): codes are round(x * (127 / absmax)), ties to
// even. Without branches: one group in ten has an outlier, and none can be foretold. What there is one number of in a group is worked out
// for four groups at once; a group meets the same operations whatever N is, which matters where there are NaNs.
template <size_t N>
OCTAVO_FN void quantize_groups(const F32 (&x)[N][2], const Q8Place (&to)[N]) {
  F32 size[N][2], larger[4], smaller[4];
  for (size_t i = 0; i < 4; ++i) {
    const size_t from = i < N ? i : 0;
    for (size_t h = 0; h < 2; ++h) size[from][h] = f32_abs(x[from][h]);
    larger[i] = f32_max(size[from][0], size[from][1]);
    smaller[i] = f32_min(size[from][0], size[from][1]);
  }
  Four largest, second;
  f32_largest_two4(larger, smaller, reinterpret_cast<float*>(&largest), reinterpret_cast<float*>(&second));
  const FourInts apart = largest > kOutlierRatio * second;
  const Four none{}, absmax = apart ? second : largest;
  const Four limit = apart ? second : none + __builtin_inff();  // only the outlier is beyond it
  const Four scale = absmax / 127.0f, inverse = absmax > none ? 127.0f / absmax : none;
  I32 codes[2][4];
  for (size_t i = 0; i < N; ++i) {
    float values[33];
    uint32_t beyond = 0;
    for (size_t h = 0; h < 2; ++h) {
      f32_store(values + 16 * h, x[i][h]);
      beyond |= f32_mask_less(f32_set1(limit[i]), size[i][h]) << 16 * h;
      codes[h][i] = i32_from_f32(f32_select_less(f32_set1(limit[i]), size[i][h], f32_zero(), x[i][h]) * f32_set1(inverse[i]));
      i32_store_i8(to[i].group->codes + 16 * h, codes[h][i]);
    }
    values[32] = 0.0f;
    const auto at = static_cast<size_t>(__builtin_ctzll(beyond | uint64_t{1} << 32));
    *to[i].outlier = values[at];
    *to[i].place = static_cast<uint8_t>(at % 32);
  }
  FourInts sums[2];
  for (size_t h = 0; h < 2; ++h) {
    const I32(&c)[4] = codes[h];
    i32_reduce_add4(c[0], c[N > 1 ? 1 : 0], c[N > 2 ? 2 : 0], c[N > 3 ? 3 : 0], reinterpret_cast<int32_t*>(&sums[h]));
  }
  const FourInts sum = sums[0] + sums[1];
  store_sums(scale, scale * __builtin_convertvector(sum, Four), (sums[0] & 0xffff) | sums[1] << 16, sum * -128, to);
}

// Quantizes groups 0 … count - 1, four at a time: half h of group k is value(k, h), and place(k), asked for in order, is where it goes.
template <typename Value, typename Place>
OCTAVO_FN void quantize_run(size_t count, Value value, Place place) {
  for (size_t k = 0; k < count; k += 4) {
    with_count<4>(smaller(4, count - k), [&](auto some) __attribute__((always_inline)) {
      constexpr size_t kSome = decltype(some)::value;
      F32 x[kSome][2];
      Q8Place to[kSome];
      for (size_t i = 0; i < kSome; ++i) {
        for (size_t h = 0; h < 2; ++h) x[i][h] = value(k + i, h);
        to[i] = place(k + i);
      }
      quantize_groups<kSome>(x, to);
    });
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

// Stores columns [column, column + 32) of row r of out, which is not q8; column is a multiple of 32, values past the end are 0.
OCTAVO_FN void store_floats(const Rows& out, size_t r, size_t column, F32 a, F32 b) {
  if (out.kind == BufferKind::kBF16) {
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
  if (out.kind == BufferKind::kQ8) {
    return quantize_run((width + kQ8Group - 1) / kQ8Group,
                        [&](size_t k, size_t h) __attribute__((always_inline)) { return value(32 * k + 16 * h); },
                        [&](size_t k) __attribute__((always_inline)) { return q8_place(out, r, first / kQ8Group + k); });
  }
  for (size_t i = 0; i < width; i += 32) store_floats(out, r, first + i, value(i), value(i + kLanes));
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
