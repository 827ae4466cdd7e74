// Matrix products over packed weights.
//
// The sum of an output runs over inputs in rising order, whatever the number of rows: quantized formats add, group by group of 32 (or 16),
//     float(integer dot product) * (weight scale * activation scale)  [+ offset * (activation scale * sum of codes)]
// in fp32 with fused multiply-adds. Outliers of the activations times their dequantized weights make a sum of their own, in the same order,
// which is added last. Floating formats add product by product (BF16: pair by pair).
// A tile's weights are unpacked to registers once for up to kRowsPerPass rows.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// ---- one tile times R rows: sums[r][n]; quantized formats: wide_tiles.hpp, and of Arm isa/neon_tiles.hpp ----

template <WeightType T, int R>
void float_tile(const uint8_t* tile, const char* x, size_t stride, size_t columns, float (*sums)[kTile]) {
  F32 sum[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sum[r] = f32_zero();
  for (size_t k = 0; k < columns; ++k) {
    const F32 w = T == WeightType::kF32 ? f32_load(reinterpret_cast<const float*>(tile) + k * kTile)
                                        : f16_load(reinterpret_cast<const uint16_t*>(tile) + k * kTile);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sum[r] = f32_fma(w, f32_set1(reinterpret_cast<const float*>(x + r * stride)[k]), sum[r]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) f32_store(sums[r], sum[r]);
}

template <int R>
void bf16_tile(const uint8_t* tile, const char* x, size_t stride, size_t columns, float (*sums)[kTile]) {
  F32 sum[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sum[r] = f32_zero();
  for (size_t k = 0; k < columns; k += 2) {  // rows of x are padded with zeros, as are tiles
    const Pairs w = pairs_load(reinterpret_cast<const uint16_t*>(tile) + k * kTile);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sum[r] = dot_bf16(sum[r], w, pairs_broadcast(reinterpret_cast<const uint16_t*>(x + r * stride) + k));
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) f32_store(sums[r], sum[r]);
}

template <WeightType T, int R>
OCTAVO_FN void tile_times_rows(const uint8_t* tile, const char* x, size_t stride, size_t columns, float (*sums)[kTile]) {
  if constexpr (T == WeightType::kF32 || T == WeightType::kF16)
    float_tile<T, R>(tile, x, stride, columns, sums);
  else if constexpr (T == WeightType::kBF16)
    bf16_tile<R>(tile, x, stride, columns, sums);
  else
    quantized_tile<T, R>(tile, x, stride, columns, sums);
}

// The same for 1 … kRowsPerPass rows: counts without a kernel of their own are two.
template <WeightType T>
void tile_pass(const uint8_t* tile, const char* x, size_t stride, size_t columns, size_t rows, float (*sums)[kTile]) {
  switch (rows) {
    case 1:
      return tile_times_rows<T, 1>(tile, x, stride, columns, sums);
    case 2:
      return tile_times_rows<T, 2>(tile, x, stride, columns, sums);
    case 3:
      return tile_times_rows<T, 3>(tile, x, stride, columns, sums);
    case 4:
      return tile_times_rows<T, 4>(tile, x, stride, columns, sums);
    default:
      break;
  }
  if constexpr (kRowsPerPass == 8) {
    constexpr bool kFloats =
        T == WeightType::kF32 || T == WeightType::kF16 || T == WeightType::kBF16;  // sums of 8 rows: too many registers
    if constexpr (!kFloats) {
      if (rows == 8) return tile_times_rows<T, 8>(tile, x, stride, columns, sums);
    }
    tile_pass<T>(tile, x, stride, columns, 4, sums);
    tile_pass<T>(tile, x + 4 * stride, stride, columns, rows - 4, sums + 4);
  }
  if constexpr (kRowsPerPass >= 12) {
    if (rows == 12) return tile_times_rows<T, 12>(tile, x, stride, columns, sums);
    if (rows == 8) return tile_times_rows<T, 8>(tile, x, stride, columns, sums);
    if (rows == 6) return tile_times_rows<T, 6>(tile, x, stride, columns, sums);
    const size_t part = rows > 8 ? 8 : 4;
    tile_pass<T>(tile, x, stride, columns, part, sums);
    tile_pass<T>(tile, x + part * stride, stride, columns, rows - part, sums + part);
  }
}

using TilePass = void (*)(const uint8_t* tile, const char* x, size_t stride, size_t columns, size_t rows, float (*sums)[kTile]);

constexpr TilePass kTilePass[kWeightTypes] = {tile_pass<WeightType::kF32>,  tile_pass<WeightType::kF16>,    tile_pass<WeightType::kBF16>,
                                              tile_pass<WeightType::kQ4_0>, tile_pass<WeightType::kQ4_1>,   tile_pass<WeightType::kQ5_0>,
                                              tile_pass<WeightType::kQ5_1>, tile_pass<WeightType::kQ8_0>,   tile_pass<WeightType::kQ2_K>,
                                              tile_pass<WeightType::kQ3_K>, tile_pass<WeightType::kQ4_K>,   tile_pass<WeightType::kQ5_K>,
                                              tile_pass<WeightType::kQ6_K>, tile_pass<WeightType::kIQ4_NL>, tile_pass<WeightType::kIQ4_XS>};

OCTAVO_FN const char* row_address(const Rows& rows, size_t r) {
  return static_cast<const char*>(rows.data) + r * rows.stride;
}
OCTAVO_FN size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

// ---- outliers of activations ----

struct Outlier {
  uint16_t group;
  uint8_t row, place;
  float value;
};

// Of the rows of a pass: of each row in rising order of group, and rows by turns. A matrix has at most kMaxQuantizedColumns columns.
struct Outliers {
  size_t count;
  uint32_t rows;  // bit i: row i has one
  Outlier list[kRowsPerPass * kMaxQuantizedColumns / kQ8Group + 1];
};

// Rows take turns, so that no sum waits for its own last one; no branch hangs on where outliers are, which cannot be foretold.
OCTAVO_FN void find_outliers(const Rows& x, size_t first, size_t rows, Outliers& found) {
  static_assert(kMaxQuantizedColumns / kQ8Group <= UINT16_MAX);
  uint16_t groups[kRowsPerPass][kMaxQuantizedColumns / kQ8Group + kLanes];
  size_t counts[kRowsPerPass], most = 0;
  for (size_t i = 0; i < rows; ++i) {
    counts[i] = list_nonzero(q8_outliers(x, first + i), q8_groups(x.columns), groups[i]);
    most = counts[i] > most ? counts[i] : most;
  }
  found.count = found.rows = 0;
  for (size_t turn = 0; turn < most; ++turn) {
    for (size_t i = 0; i < rows; ++i) {
      const bool there = turn < counts[i];
      const uint16_t g = there ? groups[i][turn] : uint16_t{0};
      found.list[found.count] = {g, static_cast<uint8_t>(i), q8_places(x, first + i)[g], q8_outliers(x, first + i)[g]};
      found.count += there;
      found.rows |= uint32_t{there} << i;
    }
  }
}

// Bits [from, from + width) of each lane's 32 at p.
OCTAVO_FN I32 bit_field(const uint8_t* p, size_t from, int width) {
  return i32_and(i32_load_shifted(p, static_cast<int>(from)), i32_set1((1 << width) - 1));
}

// The codes less their zero of one input of a cell, for each of the 16 outputs: see load_codes.
template <WeightType T>
OCTAVO_FN F32 weights_of(const uint8_t* cell, size_t place) {
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

// sums[r] += sum over the outliers of row r, in order of group, of outlier * weight.
template <WeightType T>
void add_outliers(const uint8_t* tile, const Outliers& outliers, float (*sums)[kTile]) {
  using F = Format<T>;
  constexpr size_t kCells = F::kSuper ? 8 : 1;  // to a head
  alignas(64) float apart[kRowsPerPass][kTile] = {};
  for (size_t i = 0; i < outliers.count; ++i) {
    const Outlier& outlier = outliers.list[i];
    const uint8_t* head = tile + outlier.group / kCells * (kHeadBytes<T> + kCells * kCellBytes<T>);
    const uint8_t* cell = head + kHeadBytes<T> + outlier.group % kCells * kCellBytes<T>;
    const size_t sub = F::kSubs == 1 ? 0 : outlier.place / 16;
    const Scales<T> s = load_scales<T>(head, cell);
    const F32 value = f32_set1(outlier.value);
    F32 sum = f32_fma(weights_of<T>(cell, outlier.place), f32_mul(s.scale[sub], value), f32_load(apart[outlier.row]));
    if constexpr (F::kAffine) sum = f32_fma(s.offset[sub], value, sum);
    f32_store(apart[outlier.row], sum);
  }
  for (uint32_t rows = outliers.rows; rows != 0; rows &= rows - 1) {
    const int r = __builtin_ctz(rows);
    f32_store(sums[r], f32_load(sums[r]) + f32_load(apart[r]));
  }
}

using AddOutliers = void (*)(const uint8_t* tile, const Outliers& outliers, float (*sums)[kTile]);

constexpr AddOutliers kAddOutliers[kWeightTypes] = {nullptr,
                                                    nullptr,
                                                    nullptr,
                                                    add_outliers<WeightType::kQ4_0>,
                                                    add_outliers<WeightType::kQ4_1>,
                                                    add_outliers<WeightType::kQ5_0>,
                                                    add_outliers<WeightType::kQ5_1>,
                                                    add_outliers<WeightType::kQ8_0>,
                                                    add_outliers<WeightType::kQ2_K>,
                                                    add_outliers<WeightType::kQ3_K>,
                                                    add_outliers<WeightType::kQ4_K>,
                                                    add_outliers<WeightType::kQ5_K>,
                                                    add_outliers<WeightType::kQ6_K>,
                                                    add_outliers<WeightType::kIQ4_NL>,
                                                    add_outliers<WeightType::kIQ4_XS>};

// Tile ``tile`` of w times ``rows`` rows of x from ``first`` on, into sums; ``outliers`` are these rows'.
OCTAVO_FN void tile_product(const WeightView& w, size_t tile, const Rows& x, size_t first, size_t rows, const Outliers& outliers,
                            float (*sums)[kTile]) {
  const size_t type = static_cast<size_t>(w.type);
  const uint8_t* data = w.data + tile * w.tile_bytes;
  kTilePass[type](data, row_address(x, first), x.stride, w.columns, rows, sums);
  if (x.kind == BufferKind::kQ8 && outliers.count != 0) kAddOutliers[type](data, outliers, sums);
}

// ---- ops ----

void linear(const LinearArgs& args, size_t row_begin, size_t row_end, size_t tile_begin, size_t tile_end) {
  const WeightView& w = args.weight;
  alignas(64) float sums[kRowsPerPass][kTile];
  Outliers outliers;
  for (size_t r = row_begin; r < row_end; r += kRowsPerPass) {
    const size_t rows = smaller(kRowsPerPass, row_end - r);
    if (args.x.kind == BufferKind::kQ8) find_outliers(args.x, r, rows, outliers);
    for (size_t tile = tile_begin; tile < tile_end; ++tile) {
      tile_product(w, tile, args.x, r, rows, outliers, sums);
      const size_t first = tile * kTile;
      const F32 bias = args.bias != nullptr ? load_columns(args.bias, first, w.rows) : f32_zero();
      for (size_t i = 0; i < rows; ++i) {
        F32 y = f32_load(sums[i]);
        if (args.bias != nullptr) y = y + bias;
        if (args.residual.data != nullptr) y = y + load_columns(f32_row(args.residual, r + i), first, w.rows);
        store_columns(f32_row(args.out, r + i), first, w.rows, y);
      }
    }
  }
}

void gated_linear(const GatedLinearArgs& args, size_t row_begin, size_t row_end, size_t begin, size_t end) {
  const size_t tiles = (args.gate.rows + kTile - 1) / kTile;
  Outliers outliers;
  alignas(64) float gate[2][kRowsPerPass][kTile] = {}, up[2][kRowsPerPass][kTile] = {};
  for (size_t r = row_begin; r < row_end; r += kRowsPerPass) {
    const size_t rows = smaller(kRowsPerPass, row_end - r);
    if (args.x.kind == BufferKind::kQ8) find_outliers(args.x, r, rows, outliers);
    for (size_t group = begin; group < end; ++group) {
      const size_t present = smaller(2, tiles - 2 * group);
      for (size_t t = 0; t < present; ++t) {
        tile_product(args.gate, 2 * group + t, args.x, r, rows, outliers, gate[t]);
        tile_product(args.up, 2 * group + t, args.x, r, rows, outliers, up[t]);
      }
      const auto value = [&](size_t i, size_t t) __attribute__((always_inline)) {
        return t < present ? f32_mul(f32_activate(args.activation, f32_load(gate[t][i])), f32_load(up[t][i])) : f32_zero();
      };
      size_t i = 0;
      if (args.out.kind == BufferKind::kQ8) {
        for (; i + 4 <= rows; i += 4) {
          F32 y[4][2];
          Q8Place to[4];
          for (size_t j = 0; j < 4; ++j) {
            for (size_t t = 0; t < 2; ++t) y[j][t] = value(i + j, t);
            to[j] = q8_place(args.out, r + i + j, group);
          }
          quantize_groups<4>(y, to);
        }
      }
      for (; i < rows; ++i) store_group(args.out, r + i, 32 * group, value(i, 0), value(i, 1));
    }
  }
}

constexpr LinearKernels linear_kernels() {
  return {.tile_bytes = tile_bytes,
          .pack = pack,
          .unpack = unpack,
          .linear = linear,
          .gated_linear = gated_linear,
          .embed = embed,
          .rows_per_pass = kRowsPerPass};
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
