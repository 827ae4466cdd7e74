#include "weight.hpp"

#include <stdexcept>

#include "cpu.hpp"

namespace octavo {
namespace {

// How a format is stored (the GGUF specification).
struct StoredFormat {
  const char* name;
  WeightType type;
  size_t block, block_bytes;
};

constexpr StoredFormat kFormats[] = {
    {"F32", WeightType::kF32, 1, 4},       {"F16", WeightType::kF16, 1, 2},         {"BF16", WeightType::kBF16, 1, 2},
    {"Q4_0", WeightType::kQ4_0, 32, 18},   {"Q4_1", WeightType::kQ4_1, 32, 20},     {"Q5_0", WeightType::kQ5_0, 32, 22},
    {"Q5_1", WeightType::kQ5_1, 32, 24},   {"Q8_0", WeightType::kQ8_0, 32, 34},     {"Q2_K", WeightType::kQ2_K, 256, 84},
    {"Q3_K", WeightType::kQ3_K, 256, 110}, {"Q4_K", WeightType::kQ4_K, 256, 144},   {"Q5_K", WeightType::kQ5_K, 256, 176},
    {"Q6_K", WeightType::kQ6_K, 256, 210}, {"IQ4_NL", WeightType::kIQ4_NL, 32, 18}, {"IQ4_XS", WeightType::kIQ4_XS, 256, 136},
};

const StoredFormat& find_format(const std::string& name) {
  for (const StoredFormat& format : kFormats)
    if (name == format.name) return format;
  throw std::invalid_argument("format: '" + name + "' is not a weight format");
}

constexpr size_t kMaxDimension = size_t{1} << 31;

void check_shape(const StoredFormat& format, size_t rows, size_t columns, size_t data_bytes) {
  if (rows == 0 || rows >= kMaxDimension) throw std::invalid_argument("rows: " + std::to_string(rows) + " is not in 1 … 2^31 - 1");
  if (columns == 0 || columns >= kMaxDimension || columns % format.block != 0)
    throw std::invalid_argument("columns: " + std::to_string(columns) + " is not a positive multiple of " + std::to_string(format.block) +
                                ", the block of " + format.name);
  if (format.block > 1 && columns > kMaxQuantizedColumns)
    throw std::invalid_argument("columns: " + std::to_string(columns) + " is more than " + std::to_string(kMaxQuantizedColumns) +
                                ", the most of a quantized matrix");
  const size_t wanted = rows * (columns / format.block * format.block_bytes);
  if (data_bytes != wanted)
    throw std::invalid_argument("data: " + std::to_string(data_bytes) + " bytes, where [" + std::to_string(rows) + ", " +
                                std::to_string(columns) + "] " + format.name + " takes " + std::to_string(wanted));
}

}  // namespace

PackedWeight::PackedWeight(const std::string& isa, ThreadPool& pool, const std::string& format_name, size_t rows, size_t columns,
                           const uint8_t* data, size_t data_bytes)
    : kernels_(&kernels_for(isa)) {
  const StoredFormat& format = find_format(format_name);
  check_shape(format, rows, columns, data_bytes);
  run_format_ = format.name;
  const size_t tiles = (rows + kTile - 1) / kTile, tile_bytes = kernels_->linear.tile_bytes(format.type, columns);
  nbytes_ = tiles * tile_bytes;
  memory_ = MemoryPart(nbytes_);
  view_ = {memory_.data(), rows, columns, tile_bytes, format.type};
  const PackArgs args{data, columns / format.block * format.block_bytes, memory_.data(), view_};
  pool.parallel_ranges(tiles, 1 + 65536 / tile_bytes, [&](size_t begin, size_t end) { kernels_->linear.pack(args, begin, end); });
}

BufferKind PackedWeight::activation() const {
  switch (view_.type) {
    case WeightType::kF32:
    case WeightType::kF16:
      return BufferKind::kF32;
    case WeightType::kBF16:
      return BufferKind::kBF16;
    default:
      return BufferKind::kQ8;
  }
}

void PackedWeight::unpack(float* out) const {
  kernels_->linear.unpack(view_, out, 0, view_.rows);
}

const char* kind_name(BufferKind kind) {
  switch (kind) {
    case BufferKind::kF32:
      return "f32";
    case BufferKind::kQ8:
      return "q8";
    case BufferKind::kBF16:
      return "bf16";
  }
  return "";
}

}  // namespace octavo
