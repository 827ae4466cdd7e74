// Matrix products over packed weights.
//
// The sum of an output runs over inputs in rising order, whatever the number of rows: quantized formats add, group by group of 32 (or 16),
//     float(integer dot product) * (weight scale * activation scale)  [+ offset * (activation scale * sum of codes)]
// in fp32 with fused multiply-adds. Outliers of the activations times their dequantized weights are added last, in the same order. Floating
// formats add product by product (BF16: pair by pair).
// A tile's weights are unpacked to registers once for up to kRowsPerPass rows.
#pragma once

#include <type_traits>

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
OCTAVO_FN void tile_times_rows(const uint8_t* tile, const char* x, size_t stride, size_t columns, const Outliers& outliers, size_t row,
                               float (*sums)[kTile]) {
  if constexpr (T == WeightType::kF32 || T == WeightType::kF16)
    float_tile<T, R>(tile, x, stride, columns, sums);
  else if constexpr (T == WeightType::kBF16)
    bf16_tile<R>(tile, x, stride, columns, sums);
  else
    quantized_tile<T, R>(tile, x, stride, columns, outliers, row, sums);
}

// The same for 1 … kRowsPerPass rows: counts without a kernel of their own are two. row: of the pass whose outliers these are.
template <WeightType T>
void tile_pass(const uint8_t* tile, const char* x, size_t stride, size_t columns, const Outliers& outliers, size_t row, size_t rows,
               float (*sums)[kTile]) {
  switch (rows) {
    case 1:
      return tile_times_rows<T, 1>(tile, x, stride, columns, outliers, row, sums);
    case 2:
      return tile_times_rows<T, 2>(tile, x, stride, columns, outliers, row, sums);
    case 3:
      return tile_times_rows<T, 3>(tile, x, stride, columns, outliers, row, sums);
    case 4:
      return tile_times_rows<T, 4>(tile, x, stride, columns, outliers, row, sums);
    default:
      break;
  }
  if constexpr (kRowsPerPass == 8) {
    constexpr bool kFloats =
        T == WeightType::kF32 || T == WeightType::kF16 || T == WeightType::kBF16;  // sums of 8 rows: too many registers
    if constexpr (!kFloats) {
      if (rows == 8) return tile_times_rows<T, 8>(tile, x, stride, columns, outliers, row, sums);
    }
    tile_pass<T>(tile, x, stride, columns, outliers, row, 4, sums);
    tile_pass<T>(tile, x + 4 * stride, stride, columns, outliers, row + 4, rows - 4, sums + 4);
  }
  if constexpr (kRowsPerPass >= 12) {
    if (rows == 12) return tile_times_rows<T, 12>(tile, x, stride, columns, outliers, row, sums);
    if (rows == 8) return tile_times_rows<T, 8>(tile, x, stride, columns, outliers, row, sums);
    if (rows == 6) return tile_times_rows<T, 6>(tile, x, stride, columns, outliers, row, sums);
    const size_t part = rows > 8 ? 8 : 4;
    tile_pass<T>(tile, x, stride, columns, outliers, row, part, sums);
    tile_pass<T>(tile, x + part * stride, stride, columns, outliers, row + part, rows - part, sums + part);
  }
}

using TilePass = void (*)(const uint8_t* tile, const char* x, size_t stride, size_t columns, const Outliers& outliers, size_t row,
                          size_t rows, float (*sums)[kTile]);

constexpr TilePass kTilePass[kWeightTypes] = {tile_pass<WeightType::kF32>,  tile_pass<WeightType::kF16>,    tile_pass<WeightType::kBF16>,
                                              tile_pass<WeightType::kQ4_0>, tile_pass<WeightType::kQ4_1>,   tile_pass<WeightType::kQ5_0>,
                                              tile_pass<WeightType::kQ5_1>, tile_pass<WeightType::kQ8_0>,   tile_pass<WeightType::kQ2_K>,
                                              tile_pass<WeightType::kQ3_K>, tile_pass<WeightType::kQ4_K>,   tile_pass<WeightType::kQ5_K>,
                                              tile_pass<WeightType::kQ6_K>, tile_pass<WeightType::kIQ4_NL>, tile_pass<WeightType::kIQ4_XS>};

OCTAVO_FN const char* row_address(const Rows& rows, size_t r) {
  return static_cast<const char*>(rows.data) + r * rows.stride;
}

// Tile ``tile`` of w times ``rows`` rows of x from ``first`` on, into sums; ``outliers`` are these rows'.
OCTAVO_FN void tile_product(const WeightView& w, size_t tile, const Rows& x, size_t first, size_t rows, const Outliers& outliers,
                            float (*sums)[kTile]) {
  kTilePass[static_cast<size_t>(w.type)](w.data + tile * w.tile_bytes, row_address(x, first), x.stride, w.columns, outliers, 0, rows, sums);
}

// ---- ops ----

void linear(const LinearArgs& args, size_t row_begin, size_t row_end, size_t tile_begin, size_t tile_end) {
  const WeightView& w = args.weight;
  alignas(64) float sums[kRowsPerPass][kTile];
  Outliers outliers{static_cast<OutlierColumn*>(__builtin_alloca_with_align(most_outliers(args.x) * sizeof(OutlierColumn), 512)), 0};
  for (size_t r = row_begin; r < row_end; r += kRowsPerPass) {
    const size_t rows = smaller(kRowsPerPass, row_end - r);
    if (args.x.kind == BufferKind::kQ8) find_outliers(args.x, r, rows, outliers);
    for (size_t tile = tile_begin; tile < tile_end; ++tile) {
      const size_t first = tile * kTile;
      if (args.residual.data != nullptr)
        for (size_t i = 0; i < rows; ++i) prefetch(f32_row(args.residual, r + i) + first);
      tile_product(w, tile, args.x, r, rows, outliers, sums);
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
  Outliers outliers{static_cast<OutlierColumn*>(__builtin_alloca_with_align(most_outliers(args.x) * sizeof(OutlierColumn), 512)), 0};
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
      const auto value = [&](auto rough, size_t i, size_t t) __attribute__((always_inline)) {
        const F32 opened = f32_activate<decltype(rough)::value>(args.activation, f32_load(gate[t][i]));
        return t < present ? opened * f32_load(up[t][i]) : f32_zero();
      };
      if (args.out.kind == BufferKind::kQ8) {
        quantize_run(
            rows, [&](size_t i, size_t t) __attribute__((always_inline)) { return value(std::true_type{}, i, t); },
            [&](size_t i) __attribute__((always_inline)) { return q8_place(args.out, r + i, group); });
      } else if (args.out.kind == BufferKind::kBF16) {
        for (size_t i = 0; i < rows; ++i)
          store_floats(args.out, r + i, 32 * group, value(std::true_type{}, i, 0), value(std::true_type{}, i, 1));
      } else {
        for (size_t i = 0; i < rows; ++i)
          store_floats(args.out, r + i, 32 * group, value(std::false_type{}, i, 0), value(std::false_type{}, i, 1));
      }
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
