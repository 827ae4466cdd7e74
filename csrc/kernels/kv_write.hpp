// K and V into storage (kv_storage.hpp draws the layout).
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

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
OCTAVO_FN void write_head_as(const KVWriteArgs& args, size_t r, size_t head, const float* k) {
  using Element = typename KV::Element;
  const KVLayerView& kv = args.kv;
  const size_t slot = static_cast<size_t>(args.slots[r]);
  const size_t start = slot / kv.block_size * kv.block_stride + head * kv.block_size * kv.head_dim;
  const size_t token = slot % kv.block_size;
  const size_t width = kv_tile_width(kv.block_size);
  Element* tile = static_cast<Element*>(kv.k) + start + token / width * width * kv.head_dim;
  write_k<KV>(tile, width, token % width, k, kv.head_dim);
  Element* v = static_cast<Element*>(kv.v) + start + token / KV::kPair * KV::kPair * kv.head_dim + token % KV::kPair;
  write_v<KV>(v, f32_row(args.v, r) + head * kv.head_dim, kv.head_dim);
}

// K (given) and V (from args) of one head of the token in row r.
OCTAVO_FN void write_head(const KVWriteArgs& args, size_t r, size_t head, const float* k) {
  if (args.kv.type == KVType::kBF16) return write_head_as<KVBF16>(args, r, head, k);
  if (args.kv.type == KVType::kFP16) return write_head_as<KVFP16>(args, r, head, k);
  write_head_as<KVFP32>(args, r, head, k);
}

void kv_write(const KVWriteArgs& args, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    for (size_t head = 0; head < args.kv.num_kv_heads; ++head) write_head(args, r, head, f32_row(args.k, r) + head * args.kv.head_dim);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
