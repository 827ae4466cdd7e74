// Activation rows: quantizing and rounding fp32 values into q8 and bf16 buffers, and reading them back.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// Quantizes 32 values, given as two vectors (absent ones as 0), into *group.
OCTAVO_FN void quantize_group(F32 a, F32 b, Q8Group* group) {
  const float scale = f32_reduce_max(f32_max(f32_abs(a), f32_abs(b))) / 127.0f;
  I32 ca = i32_zero(), cb = i32_zero();
  if (scale != 0.0f) {
    ca = i32_from_f32(f32_div(a, f32_set1(scale)));
    cb = i32_from_f32(f32_div(b, f32_set1(scale)));
  }
  i32_store_i8(group->codes, ca);
  i32_store_i8(group->codes + 16, cb);
  const int32_t sum_a = i32_reduce_add(ca), sum_b = i32_reduce_add(cb);
  group->scale = scale;
  group->scaled_sum = scale * static_cast<float>(sum_a + sum_b);
  group->half_sum[0] = static_cast<int16_t>(sum_a);
  group->half_sum[1] = static_cast<int16_t>(sum_b);
  group->biased = -128 * (sum_a + sum_b);
}

OCTAVO_FN F32 load_up_to_16(const float* p, size_t n) { return n >= 16 ? f32_load(p) : f32_load_partial(p, n); }

// Stores values [columns] as row r of out, whatever its kind.
[[maybe_unused]] void store_row(const Rows& out, size_t r, const float* values) {
  const size_t n = out.columns;
  if (out.kind == BufferKind::kF32) {
    float* row = f32_row(out, r);
    for (size_t i = 0; i < n; i += 16) f32_store_partial(row + i, load_up_to_16(values + i, n - i), n - i < 16 ? n - i : 16);
  } else if (out.kind == BufferKind::kBF16) {
    uint16_t* row = bf16_row(out, r);
    for (size_t i = 0; i < n; i += 32) {
      bf16_store(row + i, load_up_to_16(values + i, n - i));
      bf16_store(row + i + 16, n > i + 16 ? load_up_to_16(values + i + 16, n - i - 16) : f32_zero());
    }
  } else {
    Q8Group* row = q8_row(out, r);
    for (size_t i = 0; i < n; i += 32)
      quantize_group(load_up_to_16(values + i, n - i), n > i + 16 ? load_up_to_16(values + i + 16, n - i - 16) : f32_zero(), row + i / 32);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
