// Outliers of activations (activations.hpp): which there are among the rows of a pass over a tile, and their products.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// A column of the inputs in which some rows of a pass have an outlier; the others have 0 here.
struct alignas(64) OutlierColumn {
  float values[kRowsPerPass];
  uint16_t group;
  uint8_t place;
};

// Of the rows of a pass, in rising order of group. Trained models have many in the same few columns, of whose weights one unpacking serves
// all rows then.
struct Outliers {
  OutlierColumn* columns;
  size_t count;
};

// What find_outliers needs room for, at most.
OCTAVO_FN size_t most_outliers(const Rows& x) {
  return x.kind == BufferKind::kQ8 ? kRowsPerPass * q8_groups(x.columns) : 1;
}

// Group g's columns, of the rows in ``left``, bit by bit.
OCTAVO_FN void add_columns(const Rows& x, size_t first, size_t g, uint32_t left, Outliers& found) {
  while (left != 0) {
    OutlierColumn& column = found.columns[found.count++];
    column = {.values = {}, .group = static_cast<uint16_t>(g), .place = q8_places(x, first + static_cast<size_t>(__builtin_ctz(left)))[g]};
    uint32_t elsewhere = 0;
    for (; left != 0; left &= left - 1) {
      const auto i = static_cast<size_t>(__builtin_ctz(left));
      const bool here = q8_places(x, first + i)[g] == column.place;
      column.values[i] = here ? q8_outliers(x, first + i)[g] : 0.0f;
      elsewhere |= uint32_t{!here} << i;
    }
    left = elsewhere;
  }
}

OCTAVO_FN void find_outliers(const Rows& x, size_t first, size_t rows, Outliers& found) {
  static_assert(kMaxQuantizedColumns / kQ8Group <= UINT16_MAX && kRowsPerPass < 32);
  const size_t groups = q8_groups(x.columns);
  found.count = 0;
  for (size_t begin = 0; begin < groups; begin += kLanes) {
    const size_t count = smaller(kLanes, groups - begin);
    I32 present = i32_zero();  // bit i: row i has one
    for (size_t i = 0; i < rows; ++i) {
      const F32 there = f32_abs(load_columns(q8_outliers(x, first + i), begin, groups));
      const F32 bit = f32_of_bits(i32_set1(1 << i));
      present = i32_or(present, bits_of(f32_select_less(f32_zero(), there, bit, f32_zero())));
    }
    int32_t rows_of[kLanes];
    i32_store(rows_of, present);
    for (size_t g = 0; g < count; ++g) add_columns(x, first, begin + g, static_cast<uint32_t>(rows_of[g]), found);
  }
}

// Bits [from, from + width) of each lane's 32 at p.
OCTAVO_FN I32 bit_field(const uint8_t* p, size_t from, int width) {
  return i32_and(i32_load_shifted(p, static_cast<int>(from)), i32_set1((1 << width) - 1));
}

// The codes less their zero of one input of a cell, for each of the 16 outputs: see load_codes.
template <WeightType T>
OCTAVO_FN F32 codes_of(const uint8_t* cell, size_t place) {
  using F = Format<T>;
  constexpr int kLow = kLowBits<F::kBits>, kHigh = F::kBits - kLow;
  const size_t byte = place % 4 * 8, j = place / 4;
  constexpr size_t kLowPerPlane = 8 / kLow;
  I32 code = bit_field(cell + 64 * (j / kLowPerPlane), byte + j % kLowPerPlane * kLow, kLow);
  if constexpr (kHigh > 0) {
    constexpr size_t kPerPlane = 8 / kHigh;
    const uint8_t* plane = cell + 64 * kLow + 64 * (j / kPerPlane);
    code = i32_or(code, i32_shl<kLow>(bit_field(plane, byte + j % kPerPlane * kHigh, kHigh)));
  }
  if constexpr (F::kTable) {
    int32_t index[kTile];
    uint8_t looked_up[kTile];
    i32_store(index, code);
    for (size_t n = 0; n < kTile; ++n) looked_up[n] = kIQ4Table[index[n]];
    code = i32_from_u8(looked_up);
  }
  return f32_from_i32(i32_add(code, i32_set1(-F::kZero)));
}

// sum[r] += outlier * weight, for the outliers of rows ``row`` to row + R - 1 of a pass, in order of group.
template <WeightType T, size_t R>
OCTAVO_FN void add_outliers(const uint8_t* tile, const Outliers& outliers, size_t row, F32 (&sum)[R]) {
  using F = Format<T>;
  constexpr size_t kCells = F::kSuper ? 8 : 1;  // to a head
  for (const OutlierColumn* c = outliers.columns; c != outliers.columns + outliers.count; ++c) {
    const uint8_t* head = tile + c->group / kCells * (kHeadBytes<T> + kCells * kCellBytes<T>);
    const uint8_t* cell = head + kHeadBytes<T> + c->group % kCells * kCellBytes<T>;
    const size_t sub = F::kSubs == 1 ? 0 : c->place / 16;
    const Scales<T> s = load_scales<T>(head, cell);
    F32 weights = s.scale[sub] * codes_of<T>(cell, c->place);
    if constexpr (F::kAffine) weights = weights + s.offset[sub];
    const float* values = c->values + row;
#pragma GCC unroll 16
    for (size_t r = 0; r < R; ++r) sum[r] = f32_fma(weights, f32_set1(values[r]), sum[r]);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
