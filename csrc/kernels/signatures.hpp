// The kernels of one instruction set, as a table of function pointers, and the arguments they take.
//
// How a kernel is called. The executor (program_ops.cpp) checks every operand, then splits an op into work items and calls
// pool.parallel_for(count, fn): threads claim items in rising order until none is left. A kernel gets a range [begin, end) of rows (or
// of what its comment says) and computes those outputs whole; which thread computes which range never shows in the bits.
// Kernels allocate nothing, throw nothing, and trust their arguments.
//
// How a kernel is written. A header in kernels/ is included by each of isa/{avx512,avx2,generic}.cpp, inside
//     namespace octavo::OCTAVO_ISA { namespace { … } }
// on top of the vector types of isa/OCTAVO_ISA.hpp. Everything has internal linkage, and no template or inline function of the
// standard library is used (std::min, std::exp, std::vector …): the linker would keep one instruction set's copy for all.
// The header ends with a constexpr function that fills its part of the KernelTable.
#pragma once

#include "views.hpp"

namespace octavo {

enum class Activation : int32_t { kSilu = 0, kGeluTanh = 1 };
enum class RopeStyle : int32_t { kHalf = 0, kInterleaved = 1 };

// ---- elementwise (kernels/elementwise.hpp); ranges are rows unless said otherwise ----

struct RmsNormArgs {
  Rows x;               // f32
  Rows out;             // f32 (may be x), q8 or bf16
  const float* weight;  // [columns / heads]
  size_t heads;
  float eps;
};

struct QuantizeArgs {
  Rows x;    // f32
  Rows out;  // q8 or bf16
};

struct GatedActArgs {
  Rows gate, up;  // f32
  Rows out;       // f32 (may be an input), q8 or bf16
  Activation activation;
};

struct AddArgs {
  Rows a, b, out;  // f32; out may be an input
};

struct SoftcapArgs {
  Rows x, out;  // f32; out may be x
  float cap;
};

struct GatherArgs {
  Rows x, out;          // f32; range: logits rows
  const int32_t* rows;  // [L] row of x
};

struct ElementwiseKernels {
  void (*rms_norm)(const RmsNormArgs&, size_t begin, size_t end);
  void (*quantize)(const QuantizeArgs&, size_t begin, size_t end);
  void (*gated_act)(const GatedActArgs&, size_t begin, size_t end);
  void (*add)(const AddArgs&, size_t begin, size_t end);
  void (*softcap)(const SoftcapArgs&, size_t begin, size_t end);
  void (*gather)(const GatherArgs&, size_t begin, size_t end);
};

// ---- rope and KV (kernels/rope.hpp, kernels/kv_write.hpp); ranges are tokens ----

// Cosines and sines of this step's positions, times mscale, computed in float64 once a step by the executor: each [T, pairs].
struct RopeTable {
  const float* cos;
  const float* sin;
  size_t pairs;  // 2 * pairs elements of each head rotate, the rest pass through
};

struct RopeArgs {
  Rows x, out;  // f32 [T, heads * head_dim]; out may be x
  RopeTable table;
  size_t heads, head_dim;
  RopeStyle style;
};

enum class KVType : int32_t { kBF16, kFP16, kFP32 };

// One layer of a KVStorage (kv_storage.hpp), as its kernels address it.
struct KVLayerView {
  void* k;
  void* v;
  size_t num_blocks, block_size, num_kv_heads, head_dim;
  KVType type;
};

struct KVWriteArgs {
  Rows k, v;  // f32 [T, kv_heads * head_dim]
  KVLayerView kv;
  const int32_t* slots;  // [T]
};

struct RopeKVWriteArgs {
  RopeArgs q;         // rotates q into q.out
  KVWriteArgs write;  // k is rotated on its way, with q.table and q.style; the k buffer is not changed
};

struct RopeKernels {
  void (*rope)(const RopeArgs&, size_t begin, size_t end);
  void (*kv_write)(const KVWriteArgs&, size_t begin, size_t end);
  void (*rope_kv_write)(const RopeKVWriteArgs&, size_t begin, size_t end);
};

// ---- attention (kernels/attention.hpp, attention.cpp) ----

struct AttentionArgs {
  Rows q;    // f32 [T, q_heads * head_dim]
  Rows out;  // f32, q8 or bf16 [T, q_heads * head_dim]
  KVLayerView kv;
  Step step;
  GroupStep group;
  const float* sinks;  // [q_heads] or null
  size_t q_heads;
  size_t window;  // 0: none
  float scale;
  float softcap;  // 0: none
};

// Filled in by kernels/attention.hpp; only attention.cpp calls these, so what they take is agreed there.
struct AttentionKernels {};

// Only sampling.cpp calls these.
struct SamplingKernels {};

}  // namespace octavo
