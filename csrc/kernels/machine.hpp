// Loops that measure what this instruction set can reach on a machine.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// Enough independent sums to hide the latency of a multiply-add, few enough to stay in registers.
#if defined(__AVX512F__)
constexpr size_t kSums = 16;
#else
constexpr size_t kSums = 6;
#endif
constexpr size_t kSteps = 20000;

#if !defined(OCTAVO_NEON)  // which has its own
constexpr double kInt8Ops = 128.0;
OCTAVO_FN I32 multiply_int8(I32 acc, Bytes a, Bytes b) {
  return dot_u7(acc, a, b);
}
#endif

int32_t read_streams(const uint8_t* data, size_t bytes) {
  const size_t stream = bytes / 4;
  I32 sums[4] = {i32_zero(), i32_zero(), i32_zero(), i32_zero()};
  for (size_t i = 0; i < stream; i += 64) {
    for (size_t s = 0; s < 4; ++s) {
      sums[s] = i32_add(sums[s], pairs_bits(pairs_load(reinterpret_cast<const uint16_t*>(data + s * stream + i))));
    }
  }
  return i32_reduce_add(i32_add(i32_add(sums[0], sums[1]), i32_add(sums[2], sums[3])));
}

// Adds step(sum) to kSums sums kSteps times; returns 0 in a way that the compiler cannot foresee.
template <typename V, typename Step, typename Reduce>
OCTAVO_FN double spin(V start, Step step, Reduce reduce) {
  V sums[kSums];
  for (size_t i = 0; i < kSums; ++i) sums[i] = start;
  for (size_t n = 0; n < kSteps; ++n) {
    for (size_t i = 0; i < kSums; ++i) sums[i] = step(sums[i]);
  }
  double result = 0.0;
  for (size_t i = 0; i < kSums; ++i) result += static_cast<double>(reduce(sums[i]));
  return result == 0.12345 ? 1.0 : 0.0;
}

double spin_int8(uint8_t seed) {
  const Bytes a = bytes_set1(seed & 3), b = bytes_set1(1);
  const auto step = [&](I32 sum) __attribute__((always_inline)) { return multiply_int8(sum, a, b); };
  return kInt8Ops * kSums * kSteps + spin(i32_zero(), step, [](I32 sum) { return i32_reduce_add(sum); });
}

double spin_bf16(uint8_t seed) {
  const uint16_t small[2] = {static_cast<uint16_t>(0x3f00u + (seed & 3)), 0x3f80u};
  const Pairs a = pairs_broadcast(small), b = pairs_broadcast(small);
  const auto step = [&](F32 sum) __attribute__((always_inline)) { return dot_bf16(sum, a, b); };
  return 64.0 * kSums * kSteps + spin(f32_zero(), step, [](F32 sum) { return f32_reduce_add(sum); });
}

double spin_fp32(uint8_t seed) {
  const F32 a = f32_set1(0.5f + 0.001f * static_cast<float>(seed & 3)), b = f32_set1(1.0f);
  const auto step = [&](F32 sum) __attribute__((always_inline)) { return f32_fma(sum, a, b); };
  return 32.0 * kSums * kSteps + spin(f32_zero(), step, [](F32 sum) { return f32_reduce_add(sum); });
}

constexpr MachineKernels machine_kernels() {
  return {.read = read_streams, .int8 = spin_int8, .bf16 = spin_bf16, .fp32 = spin_fp32};
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
