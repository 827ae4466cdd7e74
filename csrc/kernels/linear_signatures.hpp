// Packed weights and the kernels that read them: arguments and tables. See signatures.hpp for how kernels are called and written.
#pragma once

#include "kernels/signatures.hpp"

namespace octavo {

enum class WeightType : int32_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS
};
constexpr size_t kWeightTypes = 15;

constexpr size_t kTile = 16;  // outputs in a tile
constexpr size_t kMaxQuantizedColumns = 1 << 16;

// A packed matrix [rows, columns]: ceil(rows / 16) tiles of tile_bytes each (kernels/packing.hpp draws the layout of a tile).
struct WeightView {
  const uint8_t* data;
  size_t rows, columns;
  size_t tile_bytes;
  WeightType type;
};

struct PackArgs {
  const uint8_t* source;  // [rows, row_bytes] as stored
  size_t row_bytes;
  uint8_t* packed;
  WeightView view;
};

// y[r, n] = (sum over k of x[r, k] * w[n, k]) + bias[n] + residual[r, n], for x rows [row_begin, row_end) and tiles [tile_begin, tile_end).
struct LinearArgs {
  Rows x;
  WeightView weight;
  const float* bias;  // [N] or null
  Rows residual;      // f32 [rows, N]; data null: none
  Rows out;           // f32 [rows, N]; may be the residual
};

// out = act(x · gateᵀ) * (x · upᵀ), in groups of 32 outputs: range [begin, end) counts groups.
struct GatedLinearArgs {
  Rows x;
  WeightView gate, up;
  Rows out;  // f32, q8 or bf16
  Activation activation;
};

struct EmbedArgs {
  WeightView weight;
  const int32_t* token_ids;
  Rows out;  // f32
  float scale;
};

struct LinearKernels {
  size_t (*tile_bytes)(WeightType, size_t columns);
  void (*pack)(const PackArgs&, size_t tile_begin, size_t tile_end);
  void (*unpack)(const WeightView&, float* out, size_t row_begin, size_t row_end);  // out [rows, columns]
  void (*linear)(const LinearArgs&, size_t row_begin, size_t row_end, size_t tile_begin, size_t tile_end);
  void (*gated_linear)(const GatedLinearArgs&, size_t row_begin, size_t row_end, size_t begin, size_t end);
  void (*embed)(const EmbedArgs&, size_t begin, size_t end);  // rows
  size_t rows_per_pass;                                       // rows for which a tile is unpacked once: row splits are multiples of it
};

}  // namespace octavo
