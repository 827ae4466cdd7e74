// Packed weights read back: vectors of codes and scales for the matrix kernels, whole values for embeddings. Layout: packing.hpp.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// How many bytes before a cell is read memory is asked for it.
constexpr size_t kPrefetchAhead = 4096;

// A pass of as many rows as there can be may be one of many over the tile, which is to stay in L2 then; one of fewer is the last.
template <WeightType T, size_t R>
OCTAVO_FN void prefetch_cell(const uint8_t* cell) {
  for (size_t b = 0; b < kCellBytes<T>; b += 64) {
    if constexpr (R == kRowsPerPass)
      prefetch(cell + b);
    else
      prefetch_once(cell + b);
  }
}

// What load_codes needs of a vector besides bytes_*.
OCTAVO_FN void load_vector(const uint8_t* p, Bytes& out) {
  out = bytes_load(p);
}
OCTAVO_FN Bytes high_nibbles(Bytes a) {
  return bytes_and(bytes_shift<-4>(a), bytes_set1(15));
}

// Bits [From, From + Width) of codes J … 7, from their planes (packing.hpp).
template <int Width, int From, int J = 0, typename V>
OCTAVO_FN void load_planes(const uint8_t* planes, V (&u)[8]) {
  constexpr int kPerPlane = 8 / Width;
  V plane;
  load_vector(planes + 64 * (J / kPerPlane), plane);
  const V bits = bytes_shift<From - J % kPerPlane * Width>(plane);
  const Bytes mask = bytes_set1(((1 << Width) - 1) << From);
  if constexpr (From == 0)
    u[J] = bytes_and(bits, mask);
  else
    u[J] = bytes_or_and(u[J], bits, mask);
  if constexpr (J < 7) load_planes<Width, From, J + 1>(planes, u);
}

// The codes of a cell as 8 vectors: Bytes, or a part of them (isa/neon_tiles.hpp).
template <WeightType T, typename V>
OCTAVO_FN void load_codes(const uint8_t* cell, V (&u)[8]) {
  constexpr int kBits = Format<T>::kBits, kLow = kLowBits<kBits>;
  if constexpr (kLow == 8) {
    for (int j = 0; j < 8; ++j) load_vector(cell + 64 * j, u[j]);
  } else if constexpr (kLow == 4) {
    const Bytes low = bytes_set1(15);
    for (int i = 0; i < 4; ++i) {
      V both;
      load_vector(cell + 64 * i, both);
      u[2 * i] = bytes_and(both, low);
      u[2 * i + 1] = high_nibbles(both);
    }
  } else {
    load_planes<kLow, 0>(cell, u);
  }
  if constexpr (kBits > kLow) load_planes<kBits - kLow, kLow>(cell + 64 * kLow, u);
  if constexpr (Format<T>::kTable) {
    const Bytes table = bytes_table16(kIQ4Table);
    for (int j = 0; j < 8; ++j) u[j] = bytes_lookup(table, u[j]);
  }
}

// The scales of a cell (and its head), a lane an output, for each of the cell's kSubs parts; offsets of affine formats only.
template <WeightType T>
struct Scales {
  F32 scale[Format<T>::kSubs], offset[Format<T>::kSubs];
};

template <WeightType T>
OCTAVO_FN Scales<T> load_scales(const uint8_t* head, const uint8_t* cell) {
  using F = Format<T>;
  Scales<T> s;
  const uint8_t* p = cell + kCodeBytes<T>;
  if constexpr (!F::kSuper) {
    s.scale[0] = f16_load(reinterpret_cast<const uint16_t*>(p));
    if constexpr (F::kAffine) s.offset[0] = f16_load(reinterpret_cast<const uint16_t*>(p + 2 * kTile));
  } else {
    const F32 d = f16_load(reinterpret_cast<const uint16_t*>(head));
    for (size_t i = 0; i < F::kSubs; ++i) {
      const uint8_t* subs = p + i * kTile;
      const I32 scale = F::kSignedScales ? i32_from_i8(reinterpret_cast<const int8_t*>(subs)) : i32_from_u8(subs);
      s.scale[i] = f32_mul(d, f32_from_i32(F::kPairedScales ? i32_and(scale, i32_set1(15)) : scale));
    }
    if constexpr (F::kAffine) {
      const F32 m = f16_load(reinterpret_cast<const uint16_t*>(head + 2 * kTile));
      for (size_t i = 0; i < F::kSubs; ++i) {
        const I32 min = F::kPairedScales ? i32_sra<4>(i32_from_u8(p + i * kTile)) : i32_from_u8(p + (F::kSubs + i) * kTile);
        s.offset[i] = f32_mul(m, f32_from_i32(min));
      }
    }
  }
  return s;
}

// Calls fn(head, cell, g) for each cell of a tile, in order.
template <WeightType T, typename Fn>
OCTAVO_FN void for_cells(const uint8_t* tile, size_t groups, Fn fn) {
  if constexpr (!Format<T>::kSuper) {
    for (size_t g = 0; g < groups; ++g) fn(tile, tile + g * kCellBytes<T>, g);
  } else {
    const uint8_t* head = tile;
    for (size_t g = 0; g < groups; head += kHeadBytes<T> + 8 * kCellBytes<T>)
      for (size_t i = 0; i < 8; ++i, ++g) fn(head, head + kHeadBytes<T> + i * kCellBytes<T>, g);
  }
}

// Output `lane` of a tile, dequantized: scale * (code - zero), or scale * code + offset, in fp32.
template <WeightType T>
void unpack_lane(const uint8_t* tile, size_t columns, size_t lane, float* out) {
  using F = Format<T>;
  for_cells<T>(tile, columns / 32, [&](const uint8_t* head, const uint8_t* cell, size_t g) {
    Bytes u[8];
    load_codes<T>(cell, u);
    alignas(64) uint8_t codes[8][64];
    for (int j = 0; j < 8; ++j) bytes_store(codes[j], u[j]);
    const Scales<T> s = load_scales<T>(head, cell);
    for (size_t sub = 0; sub < F::kSubs; ++sub) {
      float scales[kTile], offsets[kTile];
      f32_store(scales, s.scale[sub]);
      if constexpr (F::kAffine) f32_store(offsets, s.offset[sub]);
      constexpr size_t kPart = 32 / F::kSubs;
      for (size_t k = sub * kPart; k < (sub + 1) * kPart; ++k) {
        const float code = static_cast<float>(static_cast<int>(codes[k / 4][4 * lane + k % 4]) - F::kZero);
        float value = scales[lane] * code;
        if constexpr (F::kAffine) value = value + offsets[lane];
        out[32 * g + k] = value;
      }
    }
  });
}

OCTAVO_FN float lane_of(F32 a, size_t lane) {
  float values[kLanes];
  f32_store(values, a);
  return values[lane];
}

// Output `lane` of a tile as fp32 [columns], whatever the format.
void unpack_row(const WeightView& w, size_t row, float* out) {
  const uint8_t* tile = w.data + row / kTile * w.tile_bytes;
  const size_t lane = row % kTile;
  const auto* half = reinterpret_cast<const uint16_t*>(tile);
  switch (w.type) {
    case WeightType::kF32:
      for (size_t k = 0; k < w.columns; ++k) out[k] = reinterpret_cast<const float*>(tile)[k * kTile + lane];
      return;
    case WeightType::kF16:
      for (size_t k = 0; k < w.columns; ++k) out[k] = lane_of(f16_load(half + k * kTile), lane);
      return;
    case WeightType::kBF16:
      for (size_t k = 0; k < w.columns; ++k) {
        const uint32_t bits = static_cast<uint32_t>(half[(k / 2 * kTile + lane) * 2 + k % 2]) << 16;
        __builtin_memcpy(out + k, &bits, 4);
      }
      return;
    default:
      return with_quantized(w.type, [&]<WeightType T>() { unpack_lane<T>(tile, w.columns, lane, out); });
  }
}

void unpack(const WeightView& w, float* out, size_t row_begin, size_t row_end) {
  for (size_t row = row_begin; row < row_end; ++row) unpack_row(w, row, out + row * w.columns);
}

void embed(const EmbedArgs& args, size_t begin, size_t end) {
  const F32 scale = f32_set1(args.scale);
  for (size_t r = begin; r < end; ++r) {
    float* out = f32_row(args.out, r);
    unpack_row(args.weight, static_cast<size_t>(args.token_ids[r]), out);
    if (args.scale == 1.0f) continue;
    const size_t columns = args.out.columns;
    for (size_t i = 0; i < columns; i += kLanes) store_columns(out, i, columns, load_columns(out, i, columns) * scale);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
