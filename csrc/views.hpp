// What kernels see: plain structs over memory that others own. No functions here but trivial accessors marked OCTAVO_INLINE:
// this header is compiled for every instruction set, so nothing in it may have linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#define OCTAVO_INLINE static inline __attribute__((always_inline, unused))

namespace octavo {

// 32 activations quantized to int8, symmetric: value = scale * code, scale = absmax / 127, codes in -127 … 127, round half to even.
// An outlier, one value larger than kOutlierRatio times every other of its group, would leave the others few codes: it is kept as it is,
// its code is 0, and absmax is that of the others. Codes past the row's end are 0.
struct Q8Group {
  int8_t codes[32];
  float scale;
  float scaled_sum;     // scale * sum of the 32 codes
  int16_t half_sum[2];  // sums of codes 0-15 and 16-31
  int32_t biased;       // -128 * sum of the 32 codes
};
static_assert(sizeof(Q8Group) == 48);
constexpr float kOutlierRatio = 3.0f;

constexpr size_t kQ8Group = 32;

enum class BufferKind : int32_t { kF32, kQ8, kBF16 };

// Rows of activations that a kernel reads or writes. Row r begins at data + r * stride bytes.
//   kF32   float [columns]                 stride = columns * 4
//   kQ8    Q8Group [groups], groups being ceil(columns / 32); then of each group its outlier, float [groups], 0 where there is none, and
//          the outlier's place in its group, uint8 [groups]    stride = q8_row_bytes(columns)
//   kBF16  uint16 [columns rounded up to 32], padded with zeros
// data is 64-byte aligned; rows of f32 buffers are not, unless columns is a multiple of 16.
struct Rows {
  void* data;
  size_t stride;
  size_t columns;
  BufferKind kind;
};

OCTAVO_INLINE float* f32_row(const Rows& rows, size_t r) {
  return reinterpret_cast<float*>(static_cast<char*>(rows.data) + r * rows.stride);
}
OCTAVO_INLINE Q8Group* q8_row(const Rows& rows, size_t r) {
  return reinterpret_cast<Q8Group*>(static_cast<char*>(rows.data) + r * rows.stride);
}
OCTAVO_INLINE size_t q8_groups(size_t columns) {
  return (columns + kQ8Group - 1) / kQ8Group;
}
OCTAVO_INLINE float* q8_outliers(const Rows& rows, size_t r) {
  return reinterpret_cast<float*>(q8_row(rows, r) + q8_groups(rows.columns));
}
OCTAVO_INLINE uint8_t* q8_places(const Rows& rows, size_t r) {
  return reinterpret_cast<uint8_t*>(q8_outliers(rows, r) + q8_groups(rows.columns));
}
// Bytes of a row, rounded up to 16.
OCTAVO_INLINE size_t q8_row_bytes(size_t columns) {
  return (q8_groups(columns) * (sizeof(Q8Group) + sizeof(float) + 1) + 15) / 16 * 16;
}
OCTAVO_INLINE uint16_t* bf16_row(const Rows& rows, size_t r) {
  return reinterpret_cast<uint16_t*>(static_cast<char*>(rows.data) + r * rows.stride);
}

// One step's inputs (octavo.ops.spec.StepInputs), checked: ids, positions, slots and block tables are all within bounds.
struct Step {
  size_t num_tokens;           // T
  size_t num_seqs;             // S
  size_t num_logits;           // L
  const int32_t* token_ids;    // [T]
  const int32_t* positions;    // [T]
  const int32_t* query_start;  // [S + 1]
  const int32_t* seq_lens;     // [S]
  const int32_t* logits_rows;  // [L]
};

// One layer group's block table and slots for a step.
struct GroupStep {
  const int32_t* block_table;  // [S, max_blocks]
  size_t max_blocks;
  const int32_t* slots;  // [T] block * block_size + position % block_size
};

}  // namespace octavo
