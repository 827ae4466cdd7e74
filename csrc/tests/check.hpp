// What the tests of the kernels share: random numbers that are the same everywhere, checks, and fingerprints of results.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernel_table.hpp"
#include "pool.hpp"

namespace octavo::test {

// SplitMix64 (Steele, Lea and Flood 2014).
class Random {
public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  size_t below(size_t n) { return bits() % n; }
  // Of mean 0 and variance 1; close to normal, within ±3.5.
  float normal() { return static_cast<float>((uniform() + uniform() + uniform() + uniform() - 2.0) * 1.7320508075688772); }

private:
  uint64_t state_;
};

inline std::vector<float> normals(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(n);
  for (float& value : x) value = random.normal();
  return x;
}

// Of which one in fifty is a hundred times as large: groups of 32 with one outlier, with several, and with none.
inline std::vector<float> normals_with_outliers(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(n);
  for (float& value : x) value = random.normal() * (random.below(50) == 0 ? 100.0f : 1.0f);
  return x;
}

// One instruction set under test. Failed checks are told on stderr, the first of each place.
class Report {
public:
  explicit Report(std::string isa) : isa_(std::move(isa)) {}
  void hold(bool good, const std::string& what);
  // A line on stdout with a hash of the bytes: instruction sets and machines that are to agree bit for bit give the same line.
  void fingerprint(const std::string& what, const void* data, size_t bytes);

  size_t checks() const { return checks_; }
  size_t failures() const { return failures_; }

private:
  std::string isa_, last_;
  size_t checks_ = 0, failures_ = 0;
};

struct Subject {
  const KernelTable& kernels;
  std::string isa;
  ThreadPool& pool;
  Report& report;
};

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <typename T>
void fingerprint(const Subject& subject, const std::string& what, const std::vector<T>& data) {
  subject.report.fingerprint(what, data.data(), data.size() * sizeof(T));
}

// A buffer of activations: rows of `columns` values of the kind, zeros to begin with.
class ActivationBuffer {
public:
  ActivationBuffer(BufferKind kind, size_t rows, size_t columns) : rows_{nullptr, row_bytes(kind, columns), columns, kind} {
    memory_.resize((rows * rows_.stride + 63) / 64 + 1);
    bytes_ = rows * rows_.stride;
  }
  ActivationBuffer(const std::vector<float>& values, size_t columns)
      : ActivationBuffer(BufferKind::kF32, values.size() / columns, columns) {
    std::memcpy(memory_.data(), values.data(), values.size() * sizeof(float));
  }

  Rows rows() const { return from(0); }
  // The same from row `first` on.
  Rows from(size_t first) const {
    Rows rows = rows_;
    rows.data = const_cast<Line*>(memory_.data());  // kernels write through any Rows
    rows.data = static_cast<char*>(rows.data) + first * rows.stride;
    return rows;
  }
  std::vector<uint8_t> bytes() const {
    const auto* data = reinterpret_cast<const uint8_t*>(memory_.data());
    return {data, data + bytes_};
  }
  std::vector<float> floats() const {
    std::vector<float> values(bytes_ / sizeof(float));
    std::memcpy(values.data(), memory_.data(), bytes_);
    return values;
  }

private:
  static size_t row_bytes(BufferKind kind, size_t columns) {
    return kind == BufferKind::kF32 ? columns * 4 : kind == BufferKind::kQ8 ? q8_row_bytes(columns) : q8_groups(columns) * 64;
  }
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> memory_;
  Rows rows_;
  size_t bytes_ = 0;
};

// ---- plain references, in double precision ----

// x rounded, half to even, to a float of `fraction` bits after the point whose least normal exponent is `least`, held at ±largest.
inline double round_to_float(double x, int fraction, int least, double largest) {
  if (x == 0.0) return x;
  int exponent;
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 1, least) - fraction);
  const double rounded = std::nearbyint(x / unit) * unit;
  return rounded > largest ? largest : rounded < -largest ? -largest : rounded;
}
inline double round_to_bf16(double x) {
  return round_to_float(x, 7, -126, INFINITY);
}
inline double round_to_fp16(double x) {
  return round_to_float(x, 10, -14, 65504.0);
}

// A row's group of 32 as views.hpp says; absent values are 0.
struct QuantizedGroup {
  Q8Group codes;
  float outlier;
  uint8_t place;
};
QuantizedGroup quantize_group(const float* x, size_t present);
// What the kinds of activation make of rows of x.
std::vector<double> as_activation(BufferKind kind, const std::vector<float>& x, size_t columns);

void test_linear(const Subject& subject);
void test_rowwise(const Subject& subject);
void test_kv(const Subject& subject);
void test_attention(const Subject& subject);
void test_sampling(const Subject& subject);
void test_machine(const Subject& subject);

}  // namespace octavo::test
