// Quantization of activations, norms, gated activations, rope and the like.
#include <algorithm>

#include "check.hpp"

namespace octavo::test {

QuantizedGroup quantize_group(const float* x, size_t present) {
  float values[32] = {}, largest = 0.0f, next = 0.0f;
  std::copy(x, x + present, values);
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  for (const float value : values)
    if (std::fabs(value) < largest) next = std::max(next, std::fabs(value));
  QuantizedGroup quantized{};
  Q8Group& group = quantized.codes;
  const auto is_largest = [&](float value) { return std::fabs(value) == largest; };
  const bool apart = largest > kOutlierRatio * next && std::count_if(values, values + 32, is_largest) == 1;
  if (apart) {
    quantized.place = static_cast<uint8_t>(std::find_if(values, values + 32, is_largest) - values);
    quantized.outlier = values[quantized.place];
    values[quantized.place] = 0.0f;
  }
  const float absmax = apart ? next : largest, inverse = absmax > 0.0f ? 127.0f / absmax : 0.0f;
  int32_t sums[2] = {};
  for (int i = 0; i < 32; ++i) {
    group.codes[i] = static_cast<int8_t>(std::nearbyint(values[i] * inverse));
    sums[i / 16] += group.codes[i];
  }
  group.scale = absmax / 127.0f;
  group.scaled_sum = group.scale * static_cast<float>(sums[0] + sums[1]);
  for (int half = 0; half < 2; ++half) group.half_sum[half] = static_cast<int16_t>(sums[half]);
  group.biased = -128 * (sums[0] + sums[1]);
  return quantized;
}

std::vector<double> as_activation(BufferKind kind, const std::vector<float>& x, size_t columns) {
  std::vector<double> values(x.begin(), x.end());
  if (kind == BufferKind::kBF16)
    for (double& value : values) value = round_to_bf16(value);
  if (kind != BufferKind::kQ8) return values;
  for (size_t row = 0; row < x.size(); row += columns) {
    for (size_t first = 0; first < columns; first += 32) {
      const size_t present = std::min<size_t>(32, columns - first);
      const QuantizedGroup group = quantize_group(&x[row + first], present);
      const auto scale = static_cast<double>(group.codes.scale);
      for (size_t i = 0; i < present; ++i) values[row + first + i] = scale * static_cast<double>(group.codes.codes[i]);
      if (group.outlier != 0.0f) values[row + first + group.place] = static_cast<double>(group.outlier);
    }
  }
  return values;
}

namespace {

constexpr size_t kTokens = 5;

bool close(double value, double wanted, double relative, double absolute = 1e-30) {
  return std::fabs(value - wanted) <= relative * std::fabs(wanted) + absolute;
}

// Ordinary rows, and rows of what rounding and outliers could go wrong on.
std::vector<float> hard_values(size_t columns) {
  std::vector<float> x = normals_with_outliers(kTokens * columns, 31);
  for (size_t i = 0; i < columns; ++i) {
    x[columns + i] = 0.0f;
    x[2 * columns + i] = (i % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(i % 8) * 0.5f;  // ties, and no value apart
    x[3 * columns + i] = std::ldexp(x[3 * columns + i], 3 * static_cast<int>(i % 64) - 100);
  }
  return x;
}

void check_quantize(const Subject& subject, size_t columns) {
  const std::vector<float> x = hard_values(columns);
  const ActivationBuffer in(x, columns);
  ActivationBuffer codes(BufferKind::kQ8, kTokens, columns), halves(BufferKind::kBF16, kTokens, columns);
  subject.kernels.elementwise.quantize({in.rows(), codes.rows()}, 0, kTokens);
  subject.kernels.elementwise.quantize({in.rows(), halves.rows()}, 0, kTokens);
  for (size_t r = 0; r < kTokens; ++r) {
    for (size_t first = 0; first < columns; first += 32) {
      const QuantizedGroup wanted = quantize_group(&x[r * columns + first], std::min<size_t>(32, columns - first));
      const Q8Group got = q8_row(codes.rows(), r)[first / 32];
      subject.report.hold(std::memcmp(&got, &wanted.codes, sizeof got) == 0, "quantized group");
      subject.report.hold(q8_outliers(codes.rows(), r)[first / 32] == wanted.outlier, "a group's outlier");
      subject.report.hold(q8_places(codes.rows(), r)[first / 32] == wanted.place, "an outlier's place");
    }
    for (size_t i = 0; i < columns; ++i) {
      const uint32_t bits = static_cast<uint32_t>(bf16_row(halves.rows(), r)[i]) << 16;
      float got;
      std::memcpy(&got, &bits, sizeof got);
      const double wanted = round_to_bf16(static_cast<double>(x[r * columns + i]));
      const bool subnormal = std::fabs(wanted) < 0x1p-126;  // which an instruction set may take for 0
      subject.report.hold(static_cast<double>(got) == wanted || (subnormal && got == 0.0f), "rounding to bf16");
    }
  }
  fingerprint(subject, "quantize-q8-" + std::to_string(columns), codes.bytes());
}

void check_rms_norm(const Subject& subject, size_t columns, size_t heads) {
  const size_t width = columns / heads;
  const std::vector<float> x = normals_with_outliers(kTokens * columns, 41), weight = normals(width, 42);
  const ActivationBuffer in(x, columns);
  ActivationBuffer out(BufferKind::kF32, kTokens, columns), codes(BufferKind::kQ8, kTokens, columns);
  subject.kernels.elementwise.rms_norm({in.rows(), out.rows(), weight.data(), heads, 1e-5f}, 0, kTokens);
  const std::vector<float> y = out.floats();
  fingerprint(subject, "rms_norm-" + std::to_string(columns), y);
  for (size_t start = 0; start < y.size(); start += width) {
    double squares = 0.0;
    for (size_t i = start; i < start + width; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
    for (size_t i = 0; i < width; ++i) {
      const double wanted = static_cast<double>(x[start + i]) * inverse * static_cast<double>(weight[i]);
      subject.report.hold(close(static_cast<double>(y[start + i]), wanted, 1e-6), "rms_norm");
    }
  }
  if (width % 32 != 0 && heads != 1) return;
  ActivationBuffer again(BufferKind::kQ8, kTokens, columns);
  subject.kernels.elementwise.rms_norm({in.rows(), codes.rows(), weight.data(), heads, 1e-5f}, 0, kTokens);
  subject.kernels.elementwise.quantize({out.rows(), again.rows()}, 0, kTokens);
  subject.report.hold(codes.bytes() == again.bytes(), "rms_norm, quantized");
}

void check_gated_act(const Subject& subject, Activation function) {
  constexpr size_t kColumns = 70;
  std::vector<float> gate = normals(kTokens * kColumns, 51), up = normals(kTokens * kColumns, 52);
  for (size_t i = 0; i < kColumns; ++i) gate[i] = (static_cast<float>(i) - 35.0f) * 3.0f;  // to where e^x is 0 and infinite
  const ActivationBuffer a(gate, kColumns), b(up, kColumns);
  ActivationBuffer out(BufferKind::kF32, kTokens, kColumns);
  subject.kernels.elementwise.gated_act({a.rows(), b.rows(), out.rows(), function}, 0, kTokens);
  const std::vector<float> y = out.floats();
  fingerprint(subject, function == Activation::kSilu ? "silu" : "gelu", y);
  for (size_t i = 0; i < y.size(); ++i) {
    const double x = static_cast<double>(gate[i]), u = 1.5957691216057308 * (x + 0.044715 * x * x * x);
    const double active = x / (1.0 + std::exp(function == Activation::kSilu ? -x : -u));
    // An exponent of size s is known to s · 2^-24.
    const double relative = 1e-6 + 3e-7 * std::fabs(function == Activation::kSilu ? x : u);
    subject.report.hold(close(static_cast<double>(y[i]), active * static_cast<double>(up[i]), relative, 1e-36), "gated activation");
  }
}

void check_simple(const Subject& subject) {
  constexpr size_t kColumns = 53;
  const std::vector<float> x = normals(kTokens * kColumns, 61), y = normals(kTokens * kColumns, 62);
  const ActivationBuffer a(x, kColumns), b(y, kColumns);
  ActivationBuffer sum(BufferKind::kF32, kTokens, kColumns), capped(BufferKind::kF32, kTokens, kColumns);
  ActivationBuffer gathered(BufferKind::kF32, 2, kColumns);
  const int32_t rows[2] = {3, 1};
  subject.kernels.elementwise.add({a.rows(), b.rows(), sum.rows()}, 0, kTokens);
  subject.kernels.elementwise.softcap({a.rows(), capped.rows(), 0.7f}, 0, kTokens);
  subject.kernels.elementwise.gather({a.rows(), gathered.rows(), rows}, 0, 2);
  fingerprint(subject, "softcap", capped.floats());
  for (size_t i = 0; i < x.size(); ++i) {
    const double wanted = 0.7f * std::tanh(static_cast<double>(x[i]) / 0.7f);
    subject.report.hold(sum.floats()[i] == x[i] + y[i], "add");
    subject.report.hold(close(static_cast<double>(capped.floats()[i]), wanted, 1e-6), "softcap");
  }
  const std::vector<float> got = gathered.floats();
  subject.report.hold(std::equal(got.begin(), got.begin() + kColumns, x.begin() + 3 * kColumns), "gather");
}

void check_rope(const Subject& subject, RopeStyle style) {
  constexpr size_t kHeads = 3, kDim = 48, kPairs = 20, kColumns = kHeads * kDim;
  const std::vector<float> x = normals(kTokens * kColumns, 71);
  std::vector<float> cos, sin;
  for (size_t i = 0; i < kTokens * kPairs; ++i) {
    cos.push_back(static_cast<float>(std::cos(0.37 * static_cast<double>(i))));
    sin.push_back(static_cast<float>(std::sin(0.37 * static_cast<double>(i))));
  }
  const ActivationBuffer in(x, kColumns);
  ActivationBuffer out(BufferKind::kF32, kTokens, kColumns);
  subject.kernels.rope.rope({in.rows(), out.rows(), {cos.data(), sin.data(), kPairs}, kHeads, kDim, style}, 0, kTokens);
  const std::vector<float> y = out.floats();
  const bool halves = style == RopeStyle::kHalf;
  for (size_t start = 0; start < x.size(); start += kDim) {
    const float *c = &cos[start / kColumns * kPairs], *s = &sin[start / kColumns * kPairs];
    for (size_t i = 0; i < kPairs; ++i) {
      const size_t first = start + (halves ? i : 2 * i), second = start + (halves ? i + kPairs : 2 * i + 1);
      const double a = static_cast<double>(x[first]), b = static_cast<double>(x[second]);
      const double turned_a = a * static_cast<double>(c[i]) - b * static_cast<double>(s[i]);
      const double turned_b = b * static_cast<double>(c[i]) + a * static_cast<double>(s[i]);
      subject.report.hold(
          close(static_cast<double>(y[first]), turned_a, 0, 1e-6) && close(static_cast<double>(y[second]), turned_b, 0, 1e-6), "rope");
    }
    subject.report.hold(std::equal(&y[start + 2 * kPairs], &y[start] + kDim, &x[start + 2 * kPairs]), "rope: what does not turn");
  }
}

}  // namespace

void test_rowwise(const Subject& subject) {
  for (const size_t columns : {size_t{256}, size_t{70}}) {
    check_quantize(subject, columns);
    check_rms_norm(subject, columns, 1);
  }
  check_rms_norm(subject, 192, 3);
  check_rms_norm(subject, 120, 5);
  check_gated_act(subject, Activation::kSilu);
  check_gated_act(subject, Activation::kGeluTanh);
  check_simple(subject);
  check_rope(subject, RopeStyle::kHalf);
  check_rope(subject, RopeStyle::kInterleaved);
}

}  // namespace octavo::test
