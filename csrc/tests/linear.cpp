// Packed weights and matrix products: every format, against double precision, at several numbers of rows.
#include <algorithm>

#include "check.hpp"
#include "weight.hpp"

namespace octavo::test {
namespace {

// How a format is stored (the GGUF specification): where a block has half-precision numbers; its other bytes may be anything.
struct Stored {
  const char* name;
  size_t block, block_bytes;
  int bits;
  std::vector<size_t> halves;
};
const std::vector<Stored> kStored = {{"F32", 1, 4, 32, {}},        {"F16", 1, 2, 16, {}},         {"BF16", 1, 2, 16, {}},
                                     {"Q4_0", 32, 18, 4, {0}},     {"Q4_1", 32, 20, 4, {0, 2}},   {"Q5_0", 32, 22, 5, {0}},
                                     {"Q5_1", 32, 24, 5, {0, 2}},  {"Q8_0", 32, 34, 8, {0}},      {"Q2_K", 256, 84, 2, {80, 82}},
                                     {"Q3_K", 256, 110, 3, {108}}, {"Q4_K", 256, 144, 4, {0, 2}}, {"Q5_K", 256, 176, 5, {0, 2}},
                                     {"Q6_K", 256, 210, 6, {208}}, {"IQ4_NL", 32, 18, 4, {0}},    {"IQ4_XS", 256, 136, 4, {0}}};

constexpr size_t kOut = 35;     // two tiles and a part of one
constexpr size_t kTokens = 33;  // full passes and a part of one

// A half of ordinary size, of either sign: 2^(1 - bits) at most.
uint16_t random_half(Random& random, int bits) {
  const size_t exponent = static_cast<size_t>(15 - bits) - random.below(4);
  return static_cast<uint16_t>(random.below(2) << 15 | exponent << 10 | random.below(1024));
}

std::vector<uint8_t> random_stored(const Stored& format, size_t rows, size_t columns, uint64_t seed) {
  Random random(seed);
  std::vector<uint8_t> data(rows * columns / format.block * format.block_bytes);
  if (format.block == 1) {
    const size_t dropped = std::strcmp(format.name, "BF16") == 0 ? 2 : 0;
    for (size_t i = 0; i < data.size(); i += format.block_bytes) {
      const float value = random.normal();
      const uint16_t half = random_half(random, 4);
      if (std::strcmp(format.name, "F16") == 0)
        std::memcpy(&data[i], &half, 2);
      else
        std::memcpy(&data[i], reinterpret_cast<const char*>(&value) + dropped, format.block_bytes);
    }
    return data;
  }
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random.bits());
  for (size_t block = 0; block < data.size(); block += format.block_bytes)
    for (const size_t at : format.halves) {
      const uint16_t half = random_half(random, format.bits);
      std::memcpy(&data[block + at], &half, 2);
    }
  return data;
}

std::vector<float> unpacked(const PackedWeight& weight) {
  std::vector<float> values(weight.view().rows * weight.view().columns);
  weight.unpack(values.data());
  return values;
}

// x in the kind that the weight's products take.
ActivationBuffer activation(const Subject& subject, const PackedWeight& weight, const ActivationBuffer& x, size_t rows) {
  if (weight.activation() == BufferKind::kF32) return x;
  ActivationBuffer out(weight.activation(), rows, x.rows().columns);
  subject.kernels.elementwise.quantize({x.rows(), out.rows()}, 0, rows);
  return out;
}

// Rows [first, first + count) of x times the weight, as one call.
std::vector<float> product(const Subject& subject, const PackedWeight& weight, const ActivationBuffer& x, size_t first, size_t count) {
  ActivationBuffer out(BufferKind::kF32, count, weight.view().rows);
  const LinearArgs args{x.from(first), weight.view(), nullptr, {nullptr, 0, 0, BufferKind::kF32}, out.rows()};
  subject.kernels.linear.linear(args, 0, count, 0, (weight.view().rows + kTile - 1) / kTile);
  return out.floats();
}

// The sum of n products in fp32, in any order, errs by at most n · 2^-24 of the sum of their sizes (Higham, Accuracy and Stability, 4.2);
// a group's share is six operations, on numbers of at most the size of the group's largest weight, or of ``term``.
void check_product(const Subject& subject, const Stored& format, const std::vector<float>& w, const std::vector<double>& x,
                   const std::vector<float>& y, double term = 0.0) {
  const size_t columns = x.size() / kTokens, group = format.block == 1 ? 1 : 32;
  const double terms = 6.0 * static_cast<double>(columns / group) + 8.0;
  for (size_t r = 0; r < kTokens; ++r) {
    for (size_t n = 0; n < kOut; ++n) {
      double sum = 0.0, size = 0.0;
      for (size_t g = 0; g < columns; g += group) {
        double largest = term;
        for (size_t k = g; k < g + group; ++k) largest = std::max(largest, std::fabs(static_cast<double>(w[n * columns + k])));
        for (size_t k = g; k < g + group; ++k) {
          sum += x[r * columns + k] * static_cast<double>(w[n * columns + k]);
          size += std::fabs(x[r * columns + k]) * largest;
        }
      }
      subject.report.hold(std::fabs(static_cast<double>(y[r * kOut + n]) - sum) <= terms * 0x1p-24 * size + 1e-30,
                          std::string("product of ") + format.name);
    }
  }
}

void check_rows_alone(const Subject& subject, const Stored& format, const PackedWeight& weight, const ActivationBuffer& x,
                      const std::vector<float>& whole) {
  for (const size_t count : {size_t{1}, size_t{2}, size_t{3}, size_t{5}, size_t{8}, size_t{12}}) {
    for (size_t first = 0; first + count <= kTokens; first += count) {
      const std::vector<float> part = product(subject, weight, x, first, count);
      const bool same = std::memcmp(part.data(), &whole[first * kOut], part.size() * sizeof(float)) == 0;
      subject.report.hold(same, std::string("rows of ") + format.name + " depend on company");
    }
  }
}

void check_sums(const Subject& subject, const Stored& format, const PackedWeight& weight, const ActivationBuffer& x,
                const std::vector<float>& plain) {
  const std::vector<float> bias = normals(kOut, 91), residual = normals(kTokens * kOut, 92);
  ActivationBuffer out(residual, kOut);
  const LinearArgs args{x.rows(), weight.view(), bias.data(), out.rows(), out.rows()};
  subject.kernels.linear.linear(args, 0, kTokens, 0, (kOut + kTile - 1) / kTile);
  std::vector<float> wanted(plain.size());
  for (size_t i = 0; i < plain.size(); ++i) wanted[i] = (plain[i] + bias[i % kOut]) + residual[i];
  subject.report.hold(same_bits(out.floats(), wanted), std::string("bias and residual of ") + format.name);
}

void check_embedding(const Subject& subject, const Stored& format, const PackedWeight& weight, const std::vector<float>& w) {
  const size_t columns = weight.view().columns;
  const int32_t ids[3] = {34, 0, 17};
  ActivationBuffer out(BufferKind::kF32, 3, columns);
  subject.kernels.linear.embed({weight.view(), ids, out.rows(), 2.5f}, 0, 3);
  std::vector<float> wanted;
  for (const int32_t id : ids)
    for (size_t k = 0; k < columns; ++k) wanted.push_back(w[static_cast<size_t>(id) * columns + k] * 2.5f);
  subject.report.hold(same_bits(out.floats(), wanted), std::string("embedding of ") + format.name);
}

void check_format(const Subject& subject, const Stored& format) {
  const size_t columns = format.block == 1 ? 74 : format.block == 32 ? 160 : 512;
  const std::vector<uint8_t> data = random_stored(format, kOut, columns, 7);
  const PackedWeight weight(subject.isa, subject.pool, format.name, kOut, columns, data.data(), data.size());
  const PackedWeight portable("generic", subject.pool, format.name, kOut, columns, data.data(), data.size());
  const std::vector<float> w = unpacked(weight);
  subject.report.hold(same_bits(w, unpacked(portable)), std::string("unpacked ") + format.name);
  fingerprint(subject, std::string("unpacked-") + format.name, w);

  const std::vector<float> values = normals_with_outliers(kTokens * columns, 8);
  const ActivationBuffer x = activation(subject, weight, ActivationBuffer(values, columns), kTokens);
  const std::vector<float> y = product(subject, weight, x, 0, kTokens);
  fingerprint(subject, std::string("linear-") + format.name, y);
  check_product(subject, format, w, as_activation(weight.activation(), values, columns), y);
  check_rows_alone(subject, format, weight, x, y);
  check_sums(subject, format, weight, x, y);
  check_embedding(subject, format, weight, w);
}

// Weights that are all 0, or all ones, and activations of one size: the largest sums of products that there are, which overflow whatever
// is too narrow for them. Weights of a format with offsets may cancel to next to nothing, so that errors are those of their terms.
void check_extremes(const Subject& subject, const Stored& format, uint8_t fill) {
  const size_t columns = format.block == 32 ? 160 : 512;
  std::vector<uint8_t> data = random_stored(format, kOut, columns, 9);
  for (size_t i = 0; i < data.size(); ++i) {
    const size_t at = i % format.block_bytes;
    const bool half = std::any_of(format.halves.begin(), format.halves.end(), [&](size_t h) { return at == h || at == h + 1; });
    if (!half) data[i] = fill;
  }
  const PackedWeight weight(subject.isa, subject.pool, format.name, kOut, columns, data.data(), data.size());
  std::vector<float> values(kTokens * columns);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i / columns % 2 == 0 ? 1.0f : -1.0f;
  const ActivationBuffer x = activation(subject, weight, ActivationBuffer(values, columns), kTokens);
  const std::vector<float> y = product(subject, weight, x, 0, kTokens);
  fingerprint(subject, std::string("extremes-") + format.name + "-" + std::to_string(fill), y);
  check_product(subject, format, unpacked(weight), as_activation(weight.activation(), values, columns), y, 256.0);
  check_rows_alone(subject, format, weight, x, y);
}

double activate(Activation activation, double x) {
  if (activation == Activation::kSilu) return x / (1.0 + std::exp(-x));
  return x / (1.0 + std::exp(-2.0 * std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

void check_gated(const Subject& subject, const Stored& format, Activation function) {
  const size_t columns = format.block == 1 ? 74 : format.block == 32 ? 160 : 512;
  const std::vector<uint8_t> gate_data = random_stored(format, kOut, columns, 21), up_data = random_stored(format, kOut, columns, 22);
  const PackedWeight gate(subject.isa, subject.pool, format.name, kOut, columns, gate_data.data(), gate_data.size());
  const PackedWeight up(subject.isa, subject.pool, format.name, kOut, columns, up_data.data(), up_data.size());
  const ActivationBuffer x = activation(subject, gate, ActivationBuffer(normals(kTokens * columns, 23), columns), kTokens);
  const std::vector<float> a = product(subject, gate, x, 0, kTokens), b = product(subject, up, x, 0, kTokens);
  ActivationBuffer out(BufferKind::kF32, kTokens, kOut), codes(BufferKind::kQ8, kTokens, kOut);
  subject.kernels.linear.gated_linear({x.rows(), gate.view(), up.view(), out.rows(), function}, 0, kTokens, 0, 2);
  subject.kernels.linear.gated_linear({x.rows(), gate.view(), up.view(), codes.rows(), function}, 0, kTokens, 0, 2);
  const std::vector<float> y = out.floats();
  for (size_t i = 0; i < y.size(); ++i) {
    const double gated = static_cast<double>(a[i]), wanted = activate(function, gated) * static_cast<double>(b[i]);
    // An exponent of size s is known to s · 2^-24; that of GELU grows with the cube.
    const double exponent = function == Activation::kSilu ? gated : 1.6 * (gated + 0.045 * gated * gated * gated);
    subject.report.hold(std::fabs(static_cast<double>(y[i]) - wanted) <= (1e-6 + 3e-7 * std::fabs(exponent)) * std::fabs(wanted) + 1e-30,
                        std::string("gated product of ") + format.name);
  }
  // Before they are rounded, activations need not be as exact (f32_activate): the same in one op as in three.
  ActivationBuffer wanted(BufferKind::kQ8, kTokens, kOut);
  const ActivationBuffer gates(a, kOut), ups(b, kOut);
  subject.kernels.elementwise.gated_act({gates.rows(), ups.rows(), wanted.rows(), function}, 0, kTokens);
  subject.report.hold(codes.bytes() == wanted.bytes(), std::string("quantized gated product of ") + format.name);
}

}  // namespace

void test_linear(const Subject& subject) {
  for (const Stored& format : kStored) {
    check_format(subject, format);
    if (format.block == 1) continue;
    for (const uint8_t fill : {uint8_t{0x00}, uint8_t{0x80}, uint8_t{0x7F}, uint8_t{0xFF}}) check_extremes(subject, format, fill);
  }
  check_gated(subject, kStored[0], Activation::kSilu);
  check_gated(subject, kStored[3], Activation::kGeluTanh);
  check_gated(subject, kStored[12], Activation::kSilu);
}

}  // namespace octavo::test
