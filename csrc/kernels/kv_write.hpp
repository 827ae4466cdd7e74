// K and V into storage (kv_storage.hpp draws the layout).
//
// A vector, one token's K or V of one head, becomes 8-bit codes of x / scale, rounded to nearest even and held at the type's largest
// number:
//   static    scale = the layer's
//   dynamic   scale = its own, fitted to it
//   guarded   scale = the layer's, unless a number would be clipped, or the codes would err by more than kBound: the root of the mean
//             square of the error over that of the vector, both over the layer's scale. Then it is the layer's times its own, fitted
// A fitted scale takes the vector's largest number to one of kTops, that is to the type's largest number for int8, and for floats to one
// with each of the fractions there are: the one that rounds the vector best. It is rounded to bf16.
// The choice is a function of the vector alone, and so are the bits.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// Beyond this a number is held, and NaN counts as 0, so that whatever comes, scales, codes and what they stand for are finite.
constexpr float kTame = 0x1p64f;
// The least scale of a token's own: no vector divides by 0.
constexpr float kLeastScale = 0x1p-100f;

OCTAVO_FN F32 tame(F32 x) {
  const F32 zero = f32_zero();  // as the second operand it is what remains of a NaN
  return f32_min(f32_max(x, zero), f32_set1(kTame)) + f32_max(f32_min(x, zero), f32_set1(-kTame));
}

// out = x, tame; returns the largest size.
OCTAVO_FN float tame_vector(const float* x, size_t head_dim, float* out) {
  F32 largest = f32_zero();
  for (size_t i = 0; i < head_dim; i += kLanes) {
    const F32 number = tame(f32_load(x + i));
    largest = f32_max(largest, f32_abs(number));
    f32_store(out + i, number);
  }
  return f32_reduce_max(largest);
}

// Rounds half to even; x is finite.
OCTAVO_FN uint16_t bf16_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
OCTAVO_FN float float_of_bf16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float y;
  __builtin_memcpy(&y, &bits, sizeof y);
  return y;
}

// out [head_dim] = x / scale, held at the type's largest number. Returns how many were beyond it.
template <typename KV>
OCTAVO_FN uint64_t divide(const float* x, float scale, size_t head_dim, float* out) {
  const F32 most = f32_set1(KV::kLargest);
  F32 beyond = f32_zero();
  for (size_t i = 0; i < head_dim; i += kLanes) {
    const F32 y = f32_load(x + i) / f32_set1(scale);
    beyond = beyond + f32_select_less(most, f32_abs(y), f32_set1(1.0f), f32_zero());
    f32_store(out + i, f32_max(f32_set1(-KV::kLargest), f32_min(most, y)));
  }
  return static_cast<uint64_t>(f32_reduce_add(beyond));
}

// Whether the codes of y err by more than kBound of it.
template <typename KV>
OCTAVO_FN bool errs(const float* y, size_t head_dim) {
  F32 error = f32_zero(), length = f32_zero();
  for (size_t i = 0; i < head_dim; i += kLanes) {
    typename KV::Element codes[kLanes];
    F32 stored[KV::kPair];
    const F32 number = f32_load(y + i);
    KV::store(codes, number);
    KV::load(codes, stored);
    const F32 off = f32_fnma(stored[0], f32_set1(KV::kUnit), number);
    error = f32_fma(off, off, error);
    length = f32_fma(number, number, length);
  }
  return f32_reduce_add(error) > KV::kBound * KV::kBound * f32_reduce_add(length);
}

// The sum of the squares of what rounding y = x times inverse takes from it, as if the type had every exponent.
template <typename KV>
OCTAVO_FN float rounding_error(const float* x, float inverse, size_t head_dim) {
  const I32 kept = i32_set1(-(1 << (23 - KV::kFraction)));
  F32 error = f32_zero();
  for (size_t i = 0; i < head_dim; i += kLanes) {
    const F32 y = f32_abs(f32_load(x + i) * f32_set1(inverse));
    const F32 off = y - f32_of_bits(i32_and(before_dropping<KV::kFraction>(y), kept));
    error = f32_fma(off, off, error);
  }
  return f32_reduce_add(error);
}

// A scale, over the layer's, for a vector whose largest number has that size.
template <typename KV>
OCTAVO_FN uint16_t fitted_scale(const float* x, size_t head_dim, float largest, float layer_scale) {
  uint16_t best = 0;
  float least = kInfinity;
  for (const float top : KV::kTops) {
    const float fitting = largest / (top * layer_scale);
    const uint16_t own = bf16_of(fitting > kLeastScale ? fitting : kLeastScale);
    if constexpr (sizeof KV::kTops == sizeof(float))
      return own;
    else {
      const float error = rounding_error<KV>(x, 1.0f / (float_of_bf16(own) * layer_scale), head_dim) / (top * top);
      if (best == 0 || error < least) {
        least = error;
        best = own;
      }
    }
  }
  return best;
}

// A vector's numbers over its scale, into out; its own scale, if it is to have one, into own.
template <typename KV>
OCTAVO_FN void scale_vector(KVScales scales, const float* x, size_t head_dim, float layer_scale, float* out, uint16_t* own,
                            uint64_t& guarded, uint64_t& clipped) {
  float held[kMaxHeadDim];
  const float largest = tame_vector(x, head_dim, held);
  if (scales != KVScales::kDynamic) {
    const uint64_t beyond = divide<KV>(held, layer_scale, head_dim, out);
    if (scales == KVScales::kStatic) {
      clipped += beyond;
      return;
    }
    if (beyond == 0 && !errs<KV>(out, head_dim)) {
      *own = bf16_of(1.0f);
      return;
    }
    ++guarded;
  }
  *own = fitted_scale<KV>(held, head_dim, largest, layer_scale);
  divide<KV>(held, float_of_bf16(*own) * layer_scale, head_dim, out);
}

// x [head_dim] as one token's K: each run of ``pair`` elements goes to the token's lane of a tile ``width`` tokens wide.
template <typename KV>
OCTAVO_FN void write_k(typename KV::Element* tile, size_t width, size_t lane, const float* x, size_t head_dim) {
  typename KV::Element rounded[kLanes];
  for (size_t i = 0; i < head_dim; i += kLanes) {
    KV::store(rounded, f32_load(x + i));
    for (size_t j = 0; j < kLanes; j += KV::kPair) {
      __builtin_memcpy(tile + (i + j) * width + lane * KV::kPair, rounded + j, KV::kPair * sizeof rounded[0]);
    }
  }
}

// x [head_dim] as one token's V: every ``pair``-th element from v on.
template <typename KV>
OCTAVO_FN void write_v(typename KV::Element* v, const float* x, size_t head_dim) {
  typename KV::Element rounded[kLanes];
  for (size_t i = 0; i < head_dim; i += kLanes) {
    KV::store(rounded, f32_load(x + i));
    for (size_t j = 0; j < kLanes; ++j) v[(i + j) * KV::kPair] = rounded[j];
  }
}

template <typename KV>
OCTAVO_FN void write_head_as(const KVLayerView& kv, size_t slot, size_t head, const float* k, const float* v, KVCounts& counts) {
  using Element = typename KV::Element;
  float scaled_k[KV::kScaled ? kMaxHeadDim : 1], scaled_v[KV::kScaled ? kMaxHeadDim : 1];
  if constexpr (KV::kScaled) {
    const bool owned = kv.scales != KVScales::kStatic;
    const size_t own = kv_own_index(kv, slot / kv.block_size, head, slot % kv.block_size);
    scale_vector<KV>(kv.scales, k, kv.head_dim, kv.k_scale, scaled_k, owned ? kv.k_own + own : nullptr, counts.guarded_k, counts.clipped_k);
    scale_vector<KV>(kv.scales, v, kv.head_dim, kv.v_scale, scaled_v, owned ? kv.v_own + own : nullptr, counts.guarded_v, counts.clipped_v);
    ++counts.vectors;
    k = scaled_k;
    v = scaled_v;
  }
  const size_t start = slot / kv.block_size * kv.block_stride + head * kv.block_size * kv.head_dim;
  const size_t token = slot % kv.block_size;
  const size_t width = kv_tile_width(kv.block_size);
  write_k<KV>(static_cast<Element*>(kv.k) + start + token / width * width * kv.head_dim, width, token % width, k, kv.head_dim);
  write_v<KV>(static_cast<Element*>(kv.v) + start + token / KV::kPair * KV::kPair * kv.head_dim + token % KV::kPair, v, kv.head_dim);
}

// K (given) and V (from args) of one head of the token in row r.
OCTAVO_FN void write_head(const KVWriteArgs& args, size_t r, size_t head, const float* k, KVCounts& counts) {
  const float* v = f32_row(args.v, r) + head * args.kv.head_dim;
  const size_t slot = static_cast<size_t>(args.slots[r]);
  with_type(args.kv.type, [&](auto type) { write_head_as<decltype(type)>(args.kv, slot, head, k, v, counts); });
}

OCTAVO_FN void add_counts(const KVLayerView& kv, const KVCounts& counts) {
  if (kv.counts == nullptr) return;
  __atomic_fetch_add(&kv.counts->vectors, counts.vectors, __ATOMIC_RELAXED);
  __atomic_fetch_add(&kv.counts->guarded_k, counts.guarded_k, __ATOMIC_RELAXED);
  __atomic_fetch_add(&kv.counts->guarded_v, counts.guarded_v, __ATOMIC_RELAXED);
  __atomic_fetch_add(&kv.counts->clipped_k, counts.clipped_k, __ATOMIC_RELAXED);
  __atomic_fetch_add(&kv.counts->clipped_v, counts.clipped_v, __ATOMIC_RELAXED);
}

void kv_write(const KVWriteArgs& args, size_t begin, size_t end) {
  KVCounts counts{};
  for (size_t r = begin; r < end; ++r) {
    for (size_t head = 0; head < args.kv.num_kv_heads; ++head)
      write_head(args, r, head, f32_row(args.k, r) + head * args.kv.head_dim, counts);
  }
  add_counts(args.kv, counts);
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
