// Row-wise ops: norm, quantization, gated activation, add, soft cap, gather. A row's bits depend on that row alone.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// Sum of squares of x [n]: vectors go to four sums by turns, then (0 + 1) + (2 + 3), then the lanes.
OCTAVO_FN float sum_of_squares(const float* x, size_t n) {
  F32 sums[4] = {f32_zero(), f32_zero(), f32_zero(), f32_zero()};
  for (size_t i = 0; i < n; i += 4 * kLanes) {
    for (size_t j = 0; j < 4; ++j) {
      const F32 part = load_columns(x, i + j * kLanes, n);
      sums[j] = f32_fma(part, part, sums[j]);
    }
  }
  return f32_reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Columns [first, first + width) of row r; first is a multiple of 32 unless the output is fp32.
OCTAVO_FN void rms_norm_head(const RmsNormArgs& args, size_t r, size_t first, size_t width) {
  const float* x = f32_row(args.x, r) + first;
  const F32 inverse = f32_set1(1.0f / __builtin_sqrtf(sum_of_squares(x, width) / static_cast<float>(width) + args.eps));
  const auto normed = [&](size_t column) __attribute__((always_inline)) {
    return load_columns(x, column, width) * inverse * load_columns(args.weight, column, width);
  };
  if (args.out.kind == BufferKind::kF32) {
    float* y = f32_row(args.out, r) + first;
    for (size_t i = 0; i < width; i += kLanes) store_columns(y, i, width, normed(i));
  } else {
    store_columns_of(args.out, r, first, width, normed);
  }
}

void rms_norm(const RmsNormArgs& args, size_t begin, size_t end) {
  const size_t width = args.x.columns / args.heads;
  for (size_t r = begin; r < end; ++r) {
    for (size_t head = 0; head < args.heads; ++head) rms_norm_head(args, r, head * width, width);
  }
}

void quantize(const QuantizeArgs& args, size_t begin, size_t end) {
  const size_t columns = args.x.columns;
  for (size_t r = begin; r < end; ++r) {
    const float* x = f32_row(args.x, r);
    store_columns_of(args.out, r, 0, columns, [&](size_t i) __attribute__((always_inline)) { return load_columns(x, i, columns); });
  }
}

template <bool kRough>
OCTAVO_FN void gated_act_row(const GatedActArgs& args, size_t r) {
  const size_t columns = args.gate.columns;
  const float* gate = f32_row(args.gate, r);
  const float* up = f32_row(args.up, r);
  store_columns_of(args.out, r, 0, columns, [&](size_t column) __attribute__((always_inline)) {
    return f32_activate<kRough>(args.activation, load_columns(gate, column, columns)) * load_columns(up, column, columns);
  });
}

void gated_act(const GatedActArgs& args, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    if (args.out.kind == BufferKind::kF32)
      gated_act_row<false>(args, r);
    else
      gated_act_row<true>(args, r);
  }
}

void add(const AddArgs& args, size_t begin, size_t end) {
  const size_t columns = args.a.columns;
  for (size_t r = begin; r < end; ++r) {
    const float* a = f32_row(args.a, r);
    const float* b = f32_row(args.b, r);
    float* out = f32_row(args.out, r);
    for (size_t i = 0; i < columns; i += kLanes) {
      store_columns(out, i, columns, load_columns(a, i, columns) + load_columns(b, i, columns));
    }
  }
}

void softcap(const SoftcapArgs& args, size_t begin, size_t end) {
  const size_t columns = args.x.columns;
  const F32 cap = f32_set1(args.cap);
  for (size_t r = begin; r < end; ++r) {
    const float* x = f32_row(args.x, r);
    float* out = f32_row(args.out, r);
    for (size_t i = 0; i < columns; i += kLanes) store_columns(out, i, columns, cap * f32_tanh(load_columns(x, i, columns) / cap));
  }
}

void gather(const GatherArgs& args, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const float* x = f32_row(args.x, static_cast<size_t>(args.rows[r]));
    __builtin_memcpy(f32_row(args.out, r), x, args.x.columns * sizeof(float));
  }
}

constexpr ElementwiseKernels elementwise_kernels() {
  return {.rms_norm = rms_norm, .quantize = quantize, .gated_act = gated_act, .add = add, .softcap = softcap, .gather = gather};
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
