// The number formats of K and V. kPair numbers lie together: two of bf16, which a register shifts apart, else one.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// Each type stores 16 numbers rounded to nearest even, and loads kPair * 16 numbers into kPair vectors (of a pair, [0] has the first).
struct KVBF16 {
  using Element = uint16_t;
  static constexpr size_t kPair = 2;
  OCTAVO_FN void store(Element* p, F32 a) { bf16_store(p, a); }
  OCTAVO_FN void load(const Element* p, F32 (&out)[kPair]) {
    const I32 both = pairs_bits(pairs_load(p));
    out[0] = f32_of_bits(i32_shl<16>(both));
    out[1] = f32_of_bits(i32_and(both, i32_set1(static_cast<int32_t>(0xffff0000u))));
  }
};

struct KVFP16 {
  using Element = uint16_t;
  static constexpr size_t kPair = 1;
  // Held at ±65504: an infinity would spoil every later token of the sequence.
  OCTAVO_FN void store(Element* p, F32 a) { f16_store(p, f32_max(f32_set1(-65504.0f), f32_min(f32_set1(65504.0f), a))); }
  OCTAVO_FN void load(const Element* p, F32 (&out)[kPair]) { out[0] = f16_load(p); }
};

struct KVFP32 {
  using Element = float;
  static constexpr size_t kPair = 1;
  OCTAVO_FN void store(Element* p, F32 a) { f32_store(p, a); }
  OCTAVO_FN void load(const Element* p, F32 (&out)[kPair]) { out[0] = f32_load(p); }
};

}  // namespace
}  // namespace octavo::OCTAVO_ISA
