// K and V of all layers, in the kernels' own layout.
#pragma once

#include <cstddef>
#include <string>

#include "kernel_table.hpp"
#include "memory.hpp"

namespace octavo {

class KVStorage {
 public:
  // type: "bf16", "fp16" or "fp32". Throws std::invalid_argument.
  KVStorage(const std::string& isa, size_t num_layers, size_t num_blocks, size_t block_size, size_t num_kv_heads, size_t head_dim,
            const std::string& type);

  const KernelTable& kernels() const { return *kernels_; }
  size_t num_layers() const { return num_layers_; }
  size_t nbytes() const { return memory_.bytes(); }
  // Of a layer below num_layers().
  KVLayerView layer(size_t index) const;

 private:
  const KernelTable* kernels_;
  size_t num_layers_;
  size_t layer_bytes_ = 0;
  KVLayerView first_;
  Memory memory_;
};

}  // namespace octavo
