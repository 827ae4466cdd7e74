#include "kv_storage.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "cpu.hpp"

namespace octavo {
namespace {

bool is_scaled(KVType type) {
  return type == KVType::kE4M3 || type == KVType::kE5M2 || type == KVType::kInt8;
}

size_t element_bytes(KVType type) {
  return type == KVType::kFP32 ? 4 : is_scaled(type) ? 1 : 2;
}

size_t checked_product(std::initializer_list<size_t> factors) {
  size_t product = 1;
  for (const size_t factor : factors) {
    if (factor != 0 && product > std::numeric_limits<size_t>::max() / 4 / factor) throw std::bad_alloc();
    product *= factor;
  }
  return product;
}

void check(const char* name, size_t value, bool good, const char* limit) {
  if (!good) throw std::invalid_argument(std::string(name) + " = " + std::to_string(value) + ": it must be " + limit);
}

KVType kv_type(const std::string& name) {
  if (name == "bf16") return KVType::kBF16;
  if (name == "fp16") return KVType::kFP16;
  if (name == "fp32") return KVType::kFP32;
  if (name == "fp8_e4m3") return KVType::kE4M3;
  if (name == "fp8_e5m2") return KVType::kE5M2;
  if (name == "int8") return KVType::kInt8;
  throw std::invalid_argument("dtype = " + name + ": it must be bf16, fp16, fp32, fp8_e4m3, fp8_e5m2 or int8");
}

KVScales kv_scales(const std::string& name, KVType type) {
  if (!is_scaled(type)) {
    if (name == "none") return KVScales::kNone;
    throw std::invalid_argument("scales = " + name + ": only 8-bit K and V have scales");
  }
  if (name == "static") return KVScales::kStatic;
  if (name == "dynamic") return KVScales::kDynamic;
  if (name == "guarded") return KVScales::kGuarded;
  throw std::invalid_argument("scales = " + name + ": of 8-bit K and V they must be static, dynamic or guarded");
}

// K's and V's of each layer, as given or 1.
std::vector<float> checked_scales(std::vector<float> given, KVScales scales, size_t num_layers) {
  if (given.empty()) return std::vector<float>(2 * num_layers, 1.0f);
  if (scales != KVScales::kStatic && scales != KVScales::kGuarded)
    throw std::invalid_argument("layer_scales: static and guarded have them");
  if (given.size() != 2 * num_layers)
    throw std::invalid_argument("layer_scales: " + std::to_string(given.size()) + " of " + std::to_string(num_layers) + " layers' K and V");
  for (const float scale : given)
    if (!(scale >= 0x1p-40f && scale <= 0x1p40f))
      throw std::invalid_argument("layer_scales: " + std::to_string(scale) + " is not within 2^-40 … 2^40");
  return given;
}

float widen_bf16(uint16_t number) {
  const uint32_t bits = static_cast<uint32_t>(number) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// A half's exponent and fraction, moved into place, are its value times 2^-112, denormals too; NaN is all ones again.
float widen_fp16(uint16_t number) {
  const bool finite = (number & 0x7c00u) != 0x7c00u;
  const uint32_t bits = static_cast<uint32_t>(number & 0x8000u) << 16 | static_cast<uint32_t>(number & 0x7fffu) << 13;
  const uint32_t widened = finite ? bits : bits | 0x7f800000u;
  float value;
  std::memcpy(&value, &widened, sizeof value);
  return finite ? value * 0x1p112f : value;
}

float widen_8_bit(KVType type, uint8_t code) {
  if (type == KVType::kInt8) return static_cast<float>(static_cast<int8_t>(code));
  const unsigned bits = code;
  if (type == KVType::kE5M2) return widen_fp16(static_cast<uint16_t>(bits << 8));
  return widen_fp16(static_cast<uint16_t>((bits & 0x80u) << 8 | (bits & 0x7fu) << 7)) * 256.0f;
}

float widen(KVType type, const void* numbers, size_t index) {
  if (type == KVType::kFP32) return static_cast<const float*>(numbers)[index];
  if (is_scaled(type)) return widen_8_bit(type, static_cast<const uint8_t*>(numbers)[index]);
  const uint16_t number = static_cast<const uint16_t*>(numbers)[index];
  return type == KVType::kBF16 ? widen_bf16(number) : widen_fp16(number);
}

}  // namespace

KVStorage::KVStorage(const std::string& isa, size_t num_layers, size_t num_blocks, size_t block_size, size_t num_kv_heads, size_t head_dim,
                     const std::string& type, const std::string& scales, std::vector<float> layer_scales, bool bf16_products)
    : kernels_(&kernels_for(isa)), num_layers_(num_layers), shape_{} {
  shape_.num_blocks = num_blocks;
  shape_.block_size = block_size;
  shape_.num_kv_heads = num_kv_heads;
  shape_.head_dim = head_dim;
  shape_.type = kv_type(type);
  shape_.scales = kv_scales(scales, shape_.type);
  if (bf16_products && (shape_.type == KVType::kFP32 || shape_.type == KVType::kFP16))
    throw std::invalid_argument("bf16_products: bf16 does not hold the numbers of dtype = " + type);
  shape_.bf16_products = bf16_products;
  check("num_layers", num_layers, num_layers > 0, "positive");
  check("num_blocks", num_blocks, num_blocks > 0, "positive");
  check("block_size", block_size, block_size == 8 || (block_size > 0 && block_size % 16 == 0), "8 or a multiple of 16");
  check("num_kv_heads", num_kv_heads, num_kv_heads > 0, "positive");
  check("head_dim", head_dim, head_dim > 0 && head_dim % 16 == 0 && head_dim <= kMaxHeadDim, "a multiple of 16, at most 512");
  const size_t bytes = element_bytes(shape_.type);
  part_bytes_ = checked_product({block_size, num_kv_heads, head_dim, bytes});
  const bool owned = shape_.scales == KVScales::kDynamic || shape_.scales == KVScales::kGuarded;
  own_bytes_ = owned ? checked_product({block_size, num_kv_heads, sizeof(uint16_t)}) : 0;
  block_bytes_ = checked_product({2, num_layers, part_bytes_ + own_bytes_});
  shape_.block_stride = block_bytes_ / bytes;
  layer_scales_ = checked_scales(std::move(layer_scales), shape_.scales, num_layers);
  counts_.resize(num_layers);
  memory_ = Memory(checked_product({num_blocks, block_bytes_}));
}

KVLayerView KVStorage::layer(size_t index) const {
  KVLayerView view = shape_;
  uint8_t* first = memory_.data() + 2 * index * (part_bytes_ + own_bytes_);
  view.k = first;
  view.v = first + part_bytes_;
  view.k_scale = layer_scales_[2 * index];
  view.v_scale = layer_scales_[2 * index + 1];
  if (own_bytes_ > 0) {
    view.k_own = reinterpret_cast<uint16_t*>(first + 2 * part_bytes_);
    view.v_own = reinterpret_cast<uint16_t*>(first + 2 * part_bytes_ + own_bytes_);
  }
  if (shape_.scales != KVScales::kNone) view.counts = &counts_[index];
  return view;
}

void KVStorage::read(size_t layer_index, size_t block, float* k, float* v) const {
  if (layer_index >= num_layers_) throw std::out_of_range("layer = " + std::to_string(layer_index) + " is not in the storage");
  if (block >= shape_.num_blocks) throw std::out_of_range("block = " + std::to_string(block) + " is not in the storage");
  const KVLayerView view = layer(layer_index);
  const size_t dim = shape_.head_dim, heads = shape_.num_kv_heads, size = shape_.block_size, width = kv_tile_width(size);
  const size_t pair = view.type == KVType::kBF16 ? 2 : 1;
  for (size_t t = 0; t < size; ++t) {
    for (size_t h = 0; h < heads; ++h) {
      const size_t start = block * shape_.block_stride + h * size * dim;
      const size_t own = own_bytes_ > 0 ? kv_own_index(view, block, h, t) : 0;
      const float k_scale = view.k_scale * (own_bytes_ > 0 ? widen_bf16(view.k_own[own]) : 1.0f);
      const float v_scale = view.v_scale * (own_bytes_ > 0 ? widen_bf16(view.v_own[own]) : 1.0f);
      for (size_t e = 0; e < dim; ++e) {
        const size_t in_k = t / width * width * dim + e / pair * pair * width + t % width * pair + e % pair;
        const size_t in_v = t / pair * pair * dim + e * pair + t % pair;
        *k++ = widen(view.type, view.k, start + in_k) * k_scale;
        *v++ = widen(view.type, view.v, start + in_v) * v_scale;
      }
    }
  }
}

void KVStorage::copy_blocks(const int32_t* src, const int32_t* dst, size_t count) {
  check_ids(src, count);
  check_ids(dst, count);
  const std::vector<bool> written = mark_distinct(dst, count);
  if (std::none_of(src, src + count, [&](int32_t id) { return written[id]; })) {
    for (size_t i = 0; i < count; ++i) std::memcpy(block(dst[i]), block(src[i]), block_bytes_);
    return;
  }
  const Memory staged(count * block_bytes_);
  export_blocks(src, count, staged.data());
  import_blocks(dst, count, staged.data());
}

void KVStorage::export_blocks(const int32_t* blocks, size_t count, uint8_t* data) const {
  check_ids(blocks, count);
  for (size_t i = 0; i < count; ++i) std::memcpy(data + i * block_bytes_, block(blocks[i]), block_bytes_);
}

void KVStorage::import_blocks(const int32_t* blocks, size_t count, const uint8_t* data) {
  check_ids(blocks, count);
  mark_distinct(blocks, count);
  for (size_t i = 0; i < count; ++i) std::memcpy(block(blocks[i]), data + i * block_bytes_, block_bytes_);
}

void KVStorage::check_ids(const int32_t* ids, size_t count) const {
  for (size_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || static_cast<size_t>(ids[i]) >= shape_.num_blocks) {
      throw std::out_of_range("block = " + std::to_string(ids[i]) + ": the storage has " + std::to_string(shape_.num_blocks));
    }
  }
}

std::vector<bool> KVStorage::mark_distinct(const int32_t* ids, size_t count) const {
  std::vector<bool> marked(shape_.num_blocks);
  for (size_t i = 0; i < count; ++i) {
    if (marked[ids[i]]) throw std::invalid_argument("block = " + std::to_string(ids[i]) + ": it is to be written twice");
    marked[ids[i]] = true;
  }
  return marked;
}

}  // namespace octavo
