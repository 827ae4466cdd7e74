// K and V into storage and back: every type, way of scaling and kind of block.
#include <algorithm>

#include "check.hpp"
#include "kv_formats.hpp"

namespace octavo::test {
namespace {

constexpr size_t kHeads = 2, kDim = 48, kColumns = kHeads * kDim, kTokens = 37, kBlocks = 8;

// Rows of which some are small, some large, and some have a number apart.
std::vector<float> vectors(uint64_t seed) {
  std::vector<float> x = normals_with_outliers(kTokens * kColumns, seed);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], static_cast<int>(i / kColumns % 9) - 4);
  return x;
}

double rounded(const std::string& type, double x) {
  if (type == "fp32") return x;
  if (type == "bf16") return round_to_bf16(x);
  if (type == "fp16") return round_to_fp16(x);
  if (type == "fp8_e4m3") return round_to_float(x, 3, -6, 448.0);
  if (type == "fp8_e5m2") return round_to_float(x, 2, -14, 57344.0);
  return std::clamp(std::nearbyint(x), -127.0, 127.0);
}

// How far, over its own length, a vector that has a scale of its own may be off.
double bound_of(const std::string& type) {
  return type == "fp8_e4m3" ? 1.0 / 20.0 : type == "fp8_e5m2" ? 1.0 / 10.0 : 1.0 / 32.0;
}

void check_vector(const Subject& subject, const KVFormat& format, const float* x, const float* stored, float layer_scale) {
  const bool exact = format.scales == "none" || format.scales == "static";
  const double scale = exact && format.scales == "static" ? static_cast<double>(layer_scale) : 1.0;
  double error = 0.0, length = 0.0;
  for (size_t i = 0; i < kDim; ++i) {
    const double value = static_cast<double>(x[i]), got = static_cast<double>(stored[i]);
    // The quotient that the kernel rounds is itself an fp32 number.
    if (exact)
      subject.report.hold(got == rounded(format.type, static_cast<double>(x[i] / static_cast<float>(scale))) * scale,
                          "stored " + format.name());
    error += (got - value) * (got - value);
    length += value * value;
  }
  if (!exact) subject.report.hold(std::sqrt(error) <= bound_of(format.type) * std::sqrt(length), "stored " + format.name());
}

void check_format(const Subject& subject, const KVFormat& format, size_t block_size) {
  KVStorage storage = format.storage(subject.isa, kBlocks, block_size, kHeads, kDim);
  const std::vector<float> k = vectors(81), v = vectors(82);
  const ActivationBuffer keys(k, kColumns), values(v, kColumns);
  std::vector<int32_t> slots;  // backwards, from the storage's last on
  for (size_t t = 0; t < kTokens; ++t) slots.push_back(static_cast<int32_t>(kBlocks * block_size - 1 - t));
  subject.kernels.rope.kv_write({keys.rows(), values.rows(), storage.layer(1), slots.data()}, 0, kTokens);

  const size_t block_floats = block_size * kColumns;
  std::vector<float> stored_k(kBlocks * block_floats), stored_v(stored_k);
  for (size_t b = 0; b < kBlocks; ++b) storage.read(1, b, &stored_k[b * block_floats], &stored_v[b * block_floats]);
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t at = 0; at < kColumns; at += kDim) {
      const size_t to = static_cast<size_t>(slots[t]) * kColumns + at;
      check_vector(subject, format, &k[t * kColumns + at], &stored_k[to], storage.layer(1).k_scale);
      check_vector(subject, format, &v[t * kColumns + at], &stored_v[to], storage.layer(1).v_scale);
    }
  }
  const std::string name = format.name() + "-" + std::to_string(block_size);
  fingerprint(subject, "kv-k-" + name, stored_k);
  fingerprint(subject, "kv-v-" + name, stored_v);
  if (format.scales != "none") subject.report.hold(storage.counts()[1].vectors == kTokens * kHeads, "count of vectors, " + name);
}

// K that is rotated on its way is what rope and then kv_write store.
void check_rotated(const Subject& subject, const KVFormat& format, RopeStyle style) {
  constexpr size_t kPairs = kDim / 2;
  KVStorage at_once = format.storage(subject.isa, kBlocks, 16, kHeads, kDim),
            apart = format.storage(subject.isa, kBlocks, 16, kHeads, kDim);
  const std::vector<float> k = vectors(83), v = vectors(84), cos = normals(kTokens * kPairs, 85), sin = normals(kTokens * kPairs, 86);
  const ActivationBuffer keys(k, kColumns), values(v, kColumns);
  ActivationBuffer q(k, kColumns), rotated(BufferKind::kF32, kTokens, kColumns);
  std::vector<int32_t> slots;
  for (size_t t = 0; t < kTokens; ++t) slots.push_back(static_cast<int32_t>(t));
  const RopeTable table{cos.data(), sin.data(), kPairs};
  const RopeArgs turn{keys.rows(), rotated.rows(), table, kHeads, kDim, style};
  subject.kernels.rope.rope(turn, 0, kTokens);
  subject.kernels.rope.kv_write({rotated.rows(), values.rows(), apart.layer(0), slots.data()}, 0, kTokens);
  subject.kernels.rope.rope_kv_write(
      {{q.rows(), q.rows(), table, kHeads, kDim, style}, {keys.rows(), values.rows(), at_once.layer(0), slots.data()}}, 0, kTokens);
  subject.report.hold(q.bytes() == rotated.bytes(), "rotated queries");
  std::vector<int32_t> blocks;
  for (size_t b = 0; b < kBlocks; ++b) blocks.push_back(static_cast<int32_t>(b));
  std::vector<uint8_t> one(at_once.nbytes()), other(apart.nbytes());
  at_once.export_blocks(blocks.data(), kBlocks, one.data());
  apart.export_blocks(blocks.data(), kBlocks, other.data());
  subject.report.hold(one == other, "rotated keys, " + format.name());
  fingerprint(subject, "rotated-" + format.name() + (style == RopeStyle::kHalf ? "-half" : "-interleaved"), one);
}

}  // namespace

void test_kv(const Subject& subject) {
  for (const KVFormat& format : kKVFormats) {
    check_format(subject, format, 8);
    check_format(subject, format, 16);
  }
  check_rotated(subject, kKVFormats[0], RopeStyle::kHalf);
  check_rotated(subject, kKVFormats[3], RopeStyle::kInterleaved);
}

}  // namespace octavo::test
