// The number formats of K and V. kPair numbers lie together: two of bf16, which a register shifts apart, else one.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// Each type stores 16 numbers rounded to nearest even, and loads kPair * 16 numbers into kPair vectors (of a pair, [0] has the first).
struct KVBF16 {
  using Element = uint16_t;
  static constexpr size_t kPair = 2;
  static constexpr bool kScaled = false;
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
  static constexpr bool kScaled = false;
  // Held at ±65504: an infinity would spoil every later token of the sequence.
  OCTAVO_FN void store(Element* p, F32 a) { f16_store(p, f32_max(f32_set1(-65504.0f), f32_min(f32_set1(65504.0f), a))); }
  OCTAVO_FN void load(const Element* p, F32 (&out)[kPair]) { out[0] = f16_load(p); }
};

struct KVFP32 {
  using Element = float;
  static constexpr size_t kPair = 1;
  static constexpr bool kScaled = false;
  OCTAVO_FN void store(Element* p, F32 a) { f32_store(p, a); }
  OCTAVO_FN void load(const Element* p, F32 (&out)[kPair]) { out[0] = f32_load(p); }
};

// 2^exponent, of a normal number.
OCTAVO_FN F32 f32_power(int exponent) {
  return f32_of_bits(i32_set1((127 + exponent) << 23));
}

// The bits of a number's size, such that dropping those behind kFraction bits after the point rounds it, half to even.
template <int kFraction>
OCTAVO_FN I32 before_dropping(F32 size) {
  constexpr int kDropped = 23 - kFraction;
  const I32 bits = bits_of(size), odd = i32_and(i32_sra<kDropped>(bits), i32_set1(1));
  return i32_add(i32_add(bits, odd), i32_set1((1 << (kDropped - 1)) - 1));
}

// 16 numbers, none beyond the type's largest, as codes of a sign, an exponent and kFraction bits.
template <int kFraction, int kBias>
OCTAVO_FN void minifloat_store(uint8_t* p, F32 a) {
  constexpr int kDropped = 23 - kFraction;
  const F32 size = f32_abs(a);
  const I32 normal = i32_add(i32_sra<kDropped>(before_dropping<kFraction>(size)), i32_set1((kBias - 127) * (1 << kFraction)));
  // Subnormal: the adder rounds to multiples of the least number, beside one whose last place that is.
  const F32 beside = f32_power(1 - kBias + kDropped);
  const I32 subnormal = i32_add(bits_of(size + beside), i32_set1(-((127 + 1 - kBias + kDropped) << 23)));
  const I32 code = bits_of(f32_select_less(size, f32_power(1 - kBias), f32_of_bits(subnormal), f32_of_bits(normal)));
  const I32 sign = i32_and(i32_sra<31>(bits_of(a)), i32_set1(-128));
  i32_store_i8(reinterpret_cast<int8_t*>(p), i32_or(code, sign));
}

// 8-bit types hold a number divided by a scale. What load gives, times kUnit, is what was stored. kFraction:
// bits after the point, of a float. kBound, kTops: kv_write.hpp.
struct KVE4M3 {
  using Element = uint8_t;
  static constexpr size_t kPair = 1;
  static constexpr bool kScaled = true;
  static constexpr float kLargest = 448.0f, kUnit = 256.0f, kBound = 1.0f / 32.0f;
  static constexpr float kTops[] = {448, 416, 384, 352, 320, 288, 256, 240};
  static constexpr int kFraction = 3;
  OCTAVO_FN void store(Element* p, F32 a) { minifloat_store<3, 7>(p, a); }
  OCTAVO_FN void load(const Element* p, F32 (&out)[kPair]) { out[0] = e4m3_load(p); }
};

struct KVE5M2 {
  using Element = uint8_t;
  static constexpr size_t kPair = 1;
  static constexpr bool kScaled = true;
  static constexpr float kLargest = 57344.0f, kUnit = 1.0f, kBound = 1.0f / 16.0f;
  static constexpr float kTops[] = {57344, 49152, 40960, 32768};
  static constexpr int kFraction = 2;
  OCTAVO_FN void store(Element* p, F32 a) { minifloat_store<2, 15>(p, a); }
  OCTAVO_FN void load(const Element* p, F32 (&out)[kPair]) { out[0] = e5m2_load(p); }
};

struct KVInt8 {
  using Element = uint8_t;
  static constexpr size_t kPair = 1;
  static constexpr bool kScaled = true;
  static constexpr float kLargest = 127.0f, kUnit = 1.0f, kBound = 1.0f / 64.0f;
  static constexpr float kTops[] = {127};
  OCTAVO_FN void store(Element* p, F32 a) { i32_store_i8(reinterpret_cast<int8_t*>(p), i32_from_f32(a)); }
  OCTAVO_FN void load(const Element* p, F32 (&out)[kPair]) { out[0] = f32_from_i32(i32_from_i8(reinterpret_cast<const int8_t*>(p))); }
};

// fn(a value of the type's struct).
template <typename Fn>
OCTAVO_FN auto with_type(KVType type, Fn fn) {
  switch (type) {
    case KVType::kBF16:
      return fn(KVBF16{});
    case KVType::kFP16:
      return fn(KVFP16{});
    case KVType::kE4M3:
      return fn(KVE4M3{});
    case KVType::kE5M2:
      return fn(KVE5M2{});
    case KVType::kInt8:
      return fn(KVInt8{});
    default:
      return fn(KVFP32{});
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
