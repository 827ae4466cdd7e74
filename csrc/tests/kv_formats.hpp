// The formats of K and V that tests go through.
#pragma once

#include "kv_storage.hpp"

namespace octavo::test {

struct KVFormat {
  std::string type, scales;
  bool bf16_products = false;  // of attention

  std::string name() const { return type + (scales == "none" ? "" : "-" + scales) + (bf16_products ? "-products" : ""); }
  // Of two layers.
  KVStorage storage(const std::string& isa, size_t blocks, size_t block_size, size_t heads, size_t dim) const {
    const bool layered = scales == "static" || scales == "guarded";
    return {isa,          2,      blocks,
            block_size,   heads,  dim,
            type,         scales, layered ? std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f} : std::vector<float>{},
            bf16_products};
  }
};

inline const std::vector<KVFormat> kKVFormats = {
    {"bf16", "none"},        {"fp16", "none"},        {"fp32", "none"},       {"fp8_e4m3", "static"},
    {"fp8_e4m3", "dynamic"}, {"fp8_e4m3", "guarded"}, {"fp8_e5m2", "static"}, {"fp8_e5m2", "dynamic"},
    {"fp8_e5m2", "guarded"}, {"int8", "static"},      {"int8", "dynamic"},    {"int8", "guarded"},
};

}  // namespace octavo::test
