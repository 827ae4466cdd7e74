// K and V of all layers of one group.
//
// A block's numbers lie together, for all layers: memory that has been used is used again as a whole, and a fresh page serves every layer.
//
//   [block][layer][K, V][kv head][block_size * head_dim numbers]        then, where tokens have scales of their own,
//                 [K, V][kv head][block_size bf16 scales]
//
// K of one head of one block lies in tiles of W = min(16, block_size) tokens, so that a query meets W tokens at once, one a lane:
//
//   all others   [tile][element e][token t of W]
//   bf16         [tile][pair e / 2][token t of W][e % 2]        a register of pairs shifts apart into two of fp32
//
// V lies token by token, so that a token's weight multiplies a run of elements:
//
//   all others   [token][element]
//   bf16         [pair of tokens t / 2][element][t % 2]
//
// So a block moves, is shared or is copied as one run of plain bytes; nothing outside it says what it holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel_table.hpp"
#include "memory.hpp"

namespace octavo {

class KVStorage {
public:
  // Reserves address space; memory (zeros) comes as blocks are first written. type: "bf16", "fp16" or "fp32", with scales "none"; or
  // "fp8_e4m3", "fp8_e5m2" or "int8", with scales "static", "dynamic" or "guarded". layer_scales: K's and V's of each layer, 2^-40 … 2^40;
  // empty: 1. bf16_products: attention multiplies in bf16, not in fp32; of bf16 and 8-bit types, whose
  // numbers bf16 holds. block_size is 8 or a multiple of 16, head_dim a multiple of 16. Throws std::invalid_argument or std::bad_alloc.
  KVStorage(const std::string& isa, size_t num_layers, size_t num_blocks, size_t block_size, size_t num_kv_heads, size_t head_dim,
            const std::string& type, const std::string& scales = "none", std::vector<float> layer_scales = {}, bool bf16_products = false);

  const KernelTable& kernels() const { return *kernels_; }
  size_t num_layers() const { return num_layers_; }
  size_t nbytes() const { return shape_.num_blocks * block_bytes_; }
  size_t block_bytes() const { return block_bytes_; }
  // Of a layer below num_layers().
  KVLayerView layer(size_t index) const;

  // What writing a layer met so far; of wide types nothing is counted.
  const std::vector<KVCounts>& counts() const { return counts_; }

  // K and V of one block, each [block_size, kv_heads, head_dim]; for tests. Throws std::out_of_range.
  void read(size_t layer, size_t block, float* k, float* v) const;

  // Takes the memory of blocks first … first + count - 1 from the system, those that exist, before they are written; may run beside
  // anything else, in a thread of its own. What they hold stays.
  void touch_blocks(size_t first, size_t count) { memory_.touch(first * block_bytes_, count * block_bytes_); }

  // Whole blocks as plain bytes, block i of a call at data + i * block_bytes(). Throw, before anything is moved, std::out_of_range for an
  // id that is not in the storage, and std::invalid_argument for one that is to be written twice.
  //
  // copy_blocks: dst[i] becomes what src[i] was before the call, also where a block is in both.
  void copy_blocks(const int32_t* src, const int32_t* dst, size_t count);
  void export_blocks(const int32_t* blocks, size_t count, uint8_t* data) const;
  void import_blocks(const int32_t* blocks, size_t count, const uint8_t* data);

private:
  uint8_t* block(int32_t id) const { return memory_.data() + static_cast<size_t>(id) * block_bytes_; }
  void check_ids(const int32_t* ids, size_t count) const;
  std::vector<bool> mark_distinct(const int32_t* ids, size_t count) const;

  const KernelTable* kernels_;
  size_t num_layers_;
  size_t part_bytes_;   // of K's numbers, or V's, of one layer of a block
  size_t own_bytes_;    // of their scales, if tokens have their own
  size_t block_bytes_;  // of a block
  KVLayerView shape_;   // of every layer, without addresses
  std::vector<float> layer_scales_;
  mutable std::vector<KVCounts> counts_;  // by layer; kernels add to it atomically
  Memory memory_;
};

}  // namespace octavo
