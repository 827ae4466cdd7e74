// Rotary position embedding, and K and V on their way into storage.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// Elements i and i + pairs rotate together.
OCTAVO_FN void rotate_half(const float* x, float* out, const float* cos, const float* sin, size_t pairs) {
  for (size_t i = 0; i < pairs; i += kLanes) {
    const F32 a = load_columns(x, i, pairs), b = load_columns(x + pairs, i, pairs);
    const F32 c = load_columns(cos, i, pairs), s = load_columns(sin, i, pairs);
    store_columns(out, i, pairs, f32_fnma(b, s, a * c));
    store_columns(out + pairs, i, pairs, f32_fma(a, s, b * c));
  }
}

// Elements 2i and 2i + 1 rotate together.
OCTAVO_FN void rotate_interleaved(const float* x, float* out, const float* cos, const float* sin, size_t pairs) {
  for (size_t i = 0; i < pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    out[2 * i] = a * cos[i] - b * sin[i];
    out[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

// One head of the token in row r; out may be x.
OCTAVO_FN void rotate_head(const RopeTable& table, RopeStyle style, size_t r, size_t head_dim, const float* x, float* out) {
  const float* cos = table.cos + r * table.pairs;
  const float* sin = table.sin + r * table.pairs;
  if (style == RopeStyle::kHalf) {
    rotate_half(x, out, cos, sin, table.pairs);
  } else {
    rotate_interleaved(x, out, cos, sin, table.pairs);
  }
  if (out != x) __builtin_memcpy(out + 2 * table.pairs, x + 2 * table.pairs, (head_dim - 2 * table.pairs) * sizeof(float));
}

void rope(const RopeArgs& args, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    for (size_t head = 0; head < args.heads; ++head) {
      const size_t column = head * args.head_dim;
      rotate_head(args.table, args.style, r, args.head_dim, f32_row(args.x, r) + column, f32_row(args.out, r) + column);
    }
  }
}

void rope_kv_write(const RopeKVWriteArgs& args, size_t begin, size_t end) {
  const KVLayerView& kv = args.write.kv;
  KVCounts counts{};
  rope(args.q, begin, end);
  for (size_t r = begin; r < end; ++r) {
    for (size_t head = 0; head < kv.num_kv_heads; ++head) {
      float rotated[kMaxHeadDim];
      rotate_head(args.q.table, args.q.style, r, kv.head_dim, f32_row(args.write.k, r) + head * kv.head_dim, rotated);
      write_head(args.write, r, head, rotated, counts);
    }
  }
  add_counts(kv, counts);
}

constexpr RopeKernels rope_kernels() {
  return {.rope = rope, .kv_write = kv_write, .rope_kv_write = rope_kv_write};
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
