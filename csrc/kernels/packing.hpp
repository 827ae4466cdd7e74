// Weights as packed, and how they get there.
//
// A matrix [rows, columns] is cut into tiles of 16 rows (outputs); what lies past the last row is zero. A tile of a quantized format is
// ceil(columns / 32) cells, one for 32 inputs of the 16 outputs:
//
//   codes   bits * 64 bytes. They unpack to 8 vectors of 64 bytes: vector j holds inputs 4j … 4j + 3 of each output, the four of output n
//           in bytes 4n … 4n + 3, as a dot product of 4 bytes a lane takes them. They lie in planes of 64 bytes, each of which holds w
//           bits of 8 / w vectors: plane j / (8 / w), from its bit w * (j mod (8 / w)) on, is of vector j.
//             8 bits   8 planes of 8
//             4 bits   4 planes of 4; after them 5 bits have 1 plane of the fifth bits, 6 bits have 2 planes of bits 5 and 6
//             2 bits   2 planes of 2; after them 3 bits have 1 plane of the third bits
//   scales  f16 [16], then, for affine formats, offsets f16 [16]                                       (plain formats)
//           8-bit sub-scales [subs][16], then, for affine formats, 8-bit sub-minima [subs][16]         (super-block formats)
//           sub-scales in the low, sub-minima in the high half of a byte [subs][16]                    (Q2_K)
//
// Super-block formats have a head before every 8 cells: d f16 [16], then, for affine formats, -dmin f16 [16]. A scale is d * sub-scale, an
// offset -dmin * sub-minimum; both products are exact in fp32. subs is 2 where 16 inputs share a scale, else 1.
//
// Floating formats: F32 and F16 are [columns][16], BF16 is [columns / 2][16][2].
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

template <WeightType>
struct Format;

struct PlainFormat {
  static constexpr size_t kBlock = 32;
  static constexpr size_t kSubs = 1;
  static constexpr bool kSuper = false, kAffine = false, kTable = false, kPairedScales = false;
};
struct SuperFormat {
  static constexpr size_t kBlock = 256;
  static constexpr size_t kSubs = 1;
  static constexpr bool kSuper = true, kAffine = false, kTable = false;
  static constexpr bool kSignedScales = false, kPairedScales = false;  // of sub-scales: signed; a sub-scale and a sub-minimum in a byte
};

// kBits: of a packed code. kZero: the code that stands for 0 (symmetric formats). kBlockBytes: of a block as stored.
// clang-format off
template <> struct Format<WeightType::kQ4_0> : PlainFormat { static constexpr int kBits = 4, kZero = 8;   static constexpr size_t kBlockBytes = 18; };
template <> struct Format<WeightType::kQ5_0> : PlainFormat { static constexpr int kBits = 5, kZero = 16;  static constexpr size_t kBlockBytes = 22; };
template <> struct Format<WeightType::kQ8_0> : PlainFormat { static constexpr int kBits = 8, kZero = 128; static constexpr size_t kBlockBytes = 34; };
template <> struct Format<WeightType::kQ4_1> : PlainFormat { static constexpr int kBits = 4, kZero = 0;   static constexpr size_t kBlockBytes = 20;
                                                             static constexpr bool kAffine = true; };
template <> struct Format<WeightType::kQ5_1> : PlainFormat { static constexpr int kBits = 5, kZero = 0;   static constexpr size_t kBlockBytes = 24;
                                                             static constexpr bool kAffine = true; };
template <> struct Format<WeightType::kIQ4_NL> : PlainFormat { static constexpr int kBits = 4, kZero = 128; static constexpr size_t kBlockBytes = 18;
                                                               static constexpr bool kTable = true; };
template <> struct Format<WeightType::kQ2_K> : SuperFormat { static constexpr int kBits = 2, kZero = 0;   static constexpr size_t kBlockBytes = 84;
                                                             static constexpr size_t kSubs = 2; static constexpr bool kAffine = true;
                                                             static constexpr bool kPairedScales = true; };
template <> struct Format<WeightType::kQ3_K> : SuperFormat { static constexpr int kBits = 3, kZero = 4;   static constexpr size_t kBlockBytes = 110;
                                                             static constexpr size_t kSubs = 2; static constexpr bool kSignedScales = true; };
template <> struct Format<WeightType::kQ4_K> : SuperFormat { static constexpr int kBits = 4, kZero = 0;   static constexpr size_t kBlockBytes = 144;
                                                             static constexpr bool kAffine = true; };
template <> struct Format<WeightType::kQ5_K> : SuperFormat { static constexpr int kBits = 5, kZero = 0;   static constexpr size_t kBlockBytes = 176;
                                                             static constexpr bool kAffine = true; };
template <> struct Format<WeightType::kQ6_K> : SuperFormat { static constexpr int kBits = 6, kZero = 32;  static constexpr size_t kBlockBytes = 210;
                                                             static constexpr size_t kSubs = 2; static constexpr bool kSignedScales = true; };
template <> struct Format<WeightType::kIQ4_XS> : SuperFormat { static constexpr int kBits = 4, kZero = 128; static constexpr size_t kBlockBytes = 136;
                                                               static constexpr bool kTable = true, kSignedScales = true; };
// clang-format on

// Bits of the planes that come first.
template <int Bits>
constexpr int kLowBits = Bits == 8 ? 8 : (Bits >= 4 ? 4 : 2);

template <WeightType T>
constexpr size_t kCodeBytes = Format<T>::kBits * 64;
template <WeightType T>
constexpr size_t kCellBytes =
    kCodeBytes<T> + (Format<T>::kSuper ? Format<T>::kSubs * kTile : 2 * kTile) * (Format<T>::kAffine && !Format<T>::kPairedScales ? 2 : 1);
template <WeightType T>
constexpr size_t kHeadBytes = Format<T>::kSuper ? 2 * kTile * (Format<T>::kAffine ? 2 : 1) : 0;

// The code table of IQ4_NL and IQ4_XS (the GGUF specification), plus 128.
alignas(16) constexpr uint8_t kIQ4Table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

// ---- stored blocks (layouts: the GGUF specification) ----

// One block of one row, decoded: unsigned codes, and scales as they are stored. Plain formats use scale[0] and offset[0] (f16 bits),
// super-block formats d, dmin (f16 bits) and the 8-bit sub-scales and sub-minima.
template <WeightType T>
struct Decoded {
  uint8_t codes[Format<T>::kBlock];
  uint16_t d, m;
  uint8_t sub_scales[16], sub_mins[16];
};

OCTAVO_FN uint16_t load_u16(const uint8_t* p) {
  uint16_t x;
  __builtin_memcpy(&x, p, 2);
  return x;
}
OCTAVO_FN uint32_t load_u32(const uint8_t* p) {
  uint32_t x;
  __builtin_memcpy(&x, p, 4);
  return x;
}

OCTAVO_FN void split_nibbles(const uint8_t* q, size_t n, uint8_t* low, uint8_t* high) {
  for (size_t i = 0; i < n; ++i) {
    low[i] = q[i] & 15;
    high[i] = q[i] >> 4;
  }
}

// Bits 0-15 and 16-31 of `bits` become bit 4 of codes 0 … 31.
OCTAVO_FN void add_fifth_bits(uint32_t bits, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>(((bits >> i) & 1) << 4);
}

// Eight 6-bit scales and eight 6-bit minima in 12 bytes.
OCTAVO_FN void decode_k4_scales(const uint8_t* s, uint8_t* scales, uint8_t* mins) {
  for (int j = 0; j < 4; ++j) {
    scales[j] = s[j] & 63;
    mins[j] = s[j + 4] & 63;
    scales[j + 4] = static_cast<uint8_t>((s[j + 8] & 15) | (s[j] >> 6 << 4));
    mins[j + 4] = static_cast<uint8_t>((s[j + 8] >> 4) | (s[j + 4] >> 6 << 4));
  }
}

// [128][2] halves of 4-bit codes: 32 bytes hold 64 inputs.
OCTAVO_FN void split_k_nibbles(const uint8_t* q, uint8_t* codes) {
  for (int c = 0; c < 4; ++c) split_nibbles(q + 32 * c, 32, codes + 64 * c, codes + 64 * c + 32);
}

OCTAVO_FN void decode(const uint8_t* b, Decoded<WeightType::kQ4_0>& out) {
  out.d = load_u16(b);
  split_nibbles(b + 2, 16, out.codes, out.codes + 16);
}
OCTAVO_FN void decode(const uint8_t* b, Decoded<WeightType::kIQ4_NL>& out) {
  out.d = load_u16(b);
  split_nibbles(b + 2, 16, out.codes, out.codes + 16);
}
OCTAVO_FN void decode(const uint8_t* b, Decoded<WeightType::kQ4_1>& out) {
  out.d = load_u16(b);
  out.m = load_u16(b + 2);
  split_nibbles(b + 4, 16, out.codes, out.codes + 16);
}
OCTAVO_FN void decode(const uint8_t* b, Decoded<WeightType::kQ5_0>& out) {
  out.d = load_u16(b);
  split_nibbles(b + 6, 16, out.codes, out.codes + 16);
  add_fifth_bits(load_u32(b + 2), out.codes);
}
OCTAVO_FN void decode(const uint8_t* b, Decoded<WeightType::kQ5_1>& out) {
  out.d = load_u16(b);
  out.m = load_u16(b + 2);
  split_nibbles(b + 8, 16, out.codes, out.codes + 16);
  add_fifth_bits(load_u32(b + 4), out.codes);
}
OCTAVO_FN void decode(const uint8_t* b, Decoded<WeightType::kQ8_0>& out) {
  out.d = load_u16(b);
  for (int i = 0; i < 32; ++i) out.codes[i] = b[2 + i] ^ 0x80;
}
OCTAVO_FN void decode(const uint8_t* b, Decoded<WeightType::kQ2_K>& out) {
  for (int i = 0; i < 16; ++i) {
    out.sub_scales[i] = b[i] & 15;
    out.sub_mins[i] = b[i] >> 4;
  }
  for (int half = 0; half < 2; ++half)
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < 32; ++i) out.codes[128 * half + 32 * j + i] = (b[16 + 32 * half + i] >> (2 * j)) & 3;
  out.d = load_u16(b + 80);
  out.m = load_u16(b + 82);
}
OCTAVO_FN void decode(const uint8_t* b, Decoded<WeightType::kQ3_K>& out) {
  const uint8_t *high = b, *low = b + 32, *s = b + 96;
  for (int half = 0; half < 2; ++half)
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < 32; ++i)
        out.codes[128 * half + 32 * j + i] =
            static_cast<uint8_t>(((low[32 * half + i] >> (2 * j)) & 3) | (((high[i] >> (4 * half + j)) & 1) << 2));
  for (int i = 0; i < 16; ++i) {
    const int low4 = i < 8 ? s[i] & 15 : s[i - 8] >> 4, high2 = (s[8 + i % 4] >> (2 * (i / 4))) & 3;
    out.sub_scales[i] = static_cast<uint8_t>(low4 + 16 * high2 - 32);
  }
  out.d = load_u16(b + 108);
}
OCTAVO_FN void decode(const uint8_t* b, Decoded<WeightType::kQ4_K>& out) {
  out.d = load_u16(b);
  out.m = load_u16(b + 2);
  decode_k4_scales(b + 4, out.sub_scales, out.sub_mins);
  split_k_nibbles(b + 16, out.codes);
}
OCTAVO_FN void decode(const uint8_t* b, Decoded<WeightType::kQ5_K>& out) {
  out.d = load_u16(b);
  out.m = load_u16(b + 2);
  decode_k4_scales(b + 4, out.sub_scales, out.sub_mins);
  split_k_nibbles(b + 48, out.codes);
  for (int c = 0; c < 8; ++c)
    for (int i = 0; i < 32; ++i) out.codes[32 * c + i] |= static_cast<uint8_t>(((b[16 + i] >> c) & 1) << 4);
}
OCTAVO_FN void decode(const uint8_t* b, Decoded<WeightType::kQ6_K>& out) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
    uint8_t* codes = out.codes + 128 * half;
    split_nibbles(low, 64, codes, codes + 64);
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < 32; ++i) codes[32 * j + i] |= static_cast<uint8_t>(((high[i] >> (2 * j)) & 3) << 4);
  }
  for (int i = 0; i < 16; ++i) out.sub_scales[i] = b[192 + i];
  out.d = load_u16(b + 208);
}

OCTAVO_FN void decode(const uint8_t* b, Decoded<WeightType::kIQ4_XS>& out) {
  out.d = load_u16(b);
  const unsigned high2 = load_u16(b + 2);
  for (int i = 0; i < 8; ++i) {
    const unsigned low4 = (b[4 + i / 2] >> (4 * (i % 2))) & 15;
    out.sub_scales[i] = static_cast<uint8_t>(low4 + 16 * ((high2 >> (2 * i)) & 3) - 32);
    split_nibbles(b + 8 + 16 * i, 16, out.codes + 32 * i, out.codes + 32 * i + 16);
  }
}

// ---- packing ----

// Bits [From, From + Width) of codes, into Width planes.
template <int Width, int From>
OCTAVO_FN void pack_planes(const uint8_t (*vectors)[64], uint8_t* planes) {
  constexpr int kPerPlane = 8 / Width;
  for (int plane = 0; plane < Width; ++plane)
    for (int b = 0; b < 64; ++b) {
      uint8_t bits = 0;
      for (int i = 0; i < kPerPlane; ++i) {
        const int part = (vectors[plane * kPerPlane + i][b] >> From) & ((1 << Width) - 1);
        bits = static_cast<uint8_t>(bits | part << (i * Width));
      }
      planes[64 * plane + b] = bits;
    }
}

// codes: 32 of each of 16 outputs, [16][stride].
template <int Bits>
OCTAVO_FN void pack_codes(const uint8_t* codes, size_t stride, uint8_t* cell) {
  alignas(64) uint8_t vectors[8][64];
  for (size_t n = 0; n < kTile; ++n)
    for (int j = 0; j < 8; ++j) __builtin_memcpy(vectors[j] + 4 * n, codes + n * stride + 4 * j, 4);
  constexpr int kLow = kLowBits<Bits>;
  pack_planes<kLow, 0>(vectors, cell);
  if constexpr (Bits > kLow) pack_planes<Bits - kLow, kLow>(vectors, cell + 64 * kLow);
}

OCTAVO_FN void store_u16(uint8_t* p, uint16_t x) {
  __builtin_memcpy(p, &x, 2);
}

// One stored block of each of 16 rows into `packed`: kBlock / 32 cells, and their head if the format has one.
template <WeightType T>
void pack_block(const Decoded<T>* rows, uint8_t* packed) {
  using F = Format<T>;
  constexpr size_t kCells = F::kBlock / 32;
  if constexpr (F::kSuper)
    for (size_t n = 0; n < kTile; ++n) {
      store_u16(packed + 2 * n, rows[n].d);
      if constexpr (F::kAffine) store_u16(packed + 2 * (kTile + n), rows[n].m ^ 0x8000);
    }
  for (size_t c = 0; c < kCells; ++c) {
    uint8_t* cell = packed + kHeadBytes<T> + c * kCellBytes<T>;
    pack_codes<F::kBits>(rows[0].codes + 32 * c, sizeof(Decoded<T>), cell);
    uint8_t* scales = cell + kCodeBytes<T>;
    for (size_t n = 0; n < kTile; ++n) {
      if constexpr (!F::kSuper) {
        store_u16(scales + 2 * n, rows[n].d);
        if constexpr (F::kAffine) store_u16(scales + 2 * (kTile + n), rows[n].m);
      } else {
        for (size_t s = 0; s < F::kSubs; ++s) {
          const uint8_t scale = rows[n].sub_scales[c * F::kSubs + s], min = rows[n].sub_mins[c * F::kSubs + s];
          scales[s * kTile + n] = F::kPairedScales ? static_cast<uint8_t>(scale | min << 4) : scale;
          if constexpr (F::kAffine && !F::kPairedScales) scales[(F::kSubs + s) * kTile + n] = min;
        }
      }
    }
  }
}

template <WeightType T>
void pack_quantized(const PackArgs& args, size_t tile_begin, size_t tile_end) {
  using F = Format<T>;
  constexpr size_t kStep = kHeadBytes<T> + F::kBlock / 32 * kCellBytes<T>;
  for (size_t tile = tile_begin; tile < tile_end; ++tile) {
    Decoded<T> rows[kTile] = {};
    const size_t first = tile * kTile, left = args.view.rows - first, present = left < kTile ? left : kTile;
    for (size_t b = 0; b < args.view.columns / F::kBlock; ++b) {
      for (size_t n = 0; n < present; ++n) decode(args.source + (first + n) * args.row_bytes + b * F::kBlockBytes, rows[n]);
      pack_block<T>(rows, args.packed + tile * args.view.tile_bytes + b * kStep);
    }
  }
}

// Element: uint32_t (F32) or uint16_t; Inner consecutive inputs of an output lie together.
template <typename Element, size_t Inner>
void pack_floats(const PackArgs& args, size_t tile_begin, size_t tile_end) {
  for (size_t tile = tile_begin; tile < tile_end; ++tile) {
    uint8_t* packed = args.packed + tile * args.view.tile_bytes;
    __builtin_memset(packed, 0, args.view.tile_bytes);
    for (size_t n = 0; n < kTile && tile * kTile + n < args.view.rows; ++n) {
      const uint8_t* row = args.source + (tile * kTile + n) * args.row_bytes;
      for (size_t k = 0; k < args.view.columns; ++k)
        __builtin_memcpy(packed + ((k / Inner * kTile + n) * Inner + k % Inner) * sizeof(Element), row + k * sizeof(Element),
                         sizeof(Element));
    }
  }
}

// Calls fn.template operator()<T>() for a quantized format T.
template <typename Fn>
OCTAVO_FN auto with_quantized(WeightType type, Fn fn) {
  switch (type) {
    case WeightType::kQ4_0:
      return fn.template operator()<WeightType::kQ4_0>();
    case WeightType::kQ4_1:
      return fn.template operator()<WeightType::kQ4_1>();
    case WeightType::kQ5_0:
      return fn.template operator()<WeightType::kQ5_0>();
    case WeightType::kQ5_1:
      return fn.template operator()<WeightType::kQ5_1>();
    case WeightType::kQ2_K:
      return fn.template operator()<WeightType::kQ2_K>();
    case WeightType::kQ3_K:
      return fn.template operator()<WeightType::kQ3_K>();
    case WeightType::kQ4_K:
      return fn.template operator()<WeightType::kQ4_K>();
    case WeightType::kQ5_K:
      return fn.template operator()<WeightType::kQ5_K>();
    case WeightType::kQ6_K:
      return fn.template operator()<WeightType::kQ6_K>();
    case WeightType::kIQ4_NL:
      return fn.template operator()<WeightType::kIQ4_NL>();
    case WeightType::kIQ4_XS:
      return fn.template operator()<WeightType::kIQ4_XS>();
    default:
      return fn.template operator()<WeightType::kQ8_0>();
  }
}

void pack(const PackArgs& args, size_t tile_begin, size_t tile_end) {
  switch (args.view.type) {
    case WeightType::kF32:
      return pack_floats<uint32_t, 1>(args, tile_begin, tile_end);
    case WeightType::kF16:
      return pack_floats<uint16_t, 1>(args, tile_begin, tile_end);
    case WeightType::kBF16:
      return pack_floats<uint16_t, 2>(args, tile_begin, tile_end);
    default:
      return with_quantized(args.view.type, [&]<WeightType T>() { pack_quantized<T>(args, tile_begin, tile_end); });
  }
}

size_t tile_bytes(WeightType type, size_t columns) {
  switch (type) {
    case WeightType::kF32:
      return columns * kTile * 4;
    case WeightType::kF16:
      return columns * kTile * 2;
    case WeightType::kBF16:
      return (columns + 1) / 2 * kTile * 4;
    default:
      return with_quantized(
          type, [&]<WeightType T>() { return columns / Format<T>::kBlock * (kHeadBytes<T> + Format<T>::kBlock / 32 * kCellBytes<T>); });
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
