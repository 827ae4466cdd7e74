#include "kv_storage.hpp"

#include "cpu.hpp"

namespace octavo {

KVStorage::KVStorage(const std::string& isa, size_t num_layers, size_t num_blocks, size_t block_size, size_t num_kv_heads, size_t head_dim,
                     const std::string&)
    : kernels_(&kernels_for(isa)),
      num_layers_(num_layers),
      first_{nullptr, nullptr, num_blocks, block_size, num_kv_heads, head_dim, KVType::kBF16} {}

KVLayerView KVStorage::layer(size_t) const { return first_; }

}  // namespace octavo
