// The kernels of one instruction set, as a table of function pointers, and the arguments they take.
//
// How a kernel is called. The executor (program_ops.cpp) checks every operand, then splits an op into work items and calls
// pool.parallel_for(count, fn): threads claim items in rising order until none is left. A kernel gets a range [begin, end) of rows (or
// of what its comment says) and computes those outputs whole; which thread computes which range never shows in the bits.
// Kernels allocate nothing, throw nothing, and trust their arguments.
//
// How a kernel is written. A header in kernels/ is included by each isa/*.cpp, inside
//     namespace octavo::OCTAVO_ISA { namespace { … } }
// on top of the vector types of the isa/*.hpp before it. Everything has internal linkage, and no template or inline function of the
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

enum class KVType : int32_t { kBF16, kFP16, kFP32, kE4M3, kE5M2, kInt8 };

// What an 8-bit number is multiplied with: its layer's scale, and, but for kStatic, one of the token's own.
enum class KVScales : int32_t {
  kNone,     // wide types
  kStatic,   // the layer's alone
  kDynamic,  // the token's own
  kGuarded,  // the layer's, and where that fits a token badly its own (kv_write.hpp)
};

// What writing a layer met. A vector is one token's K, or V, of one head. Kernels add to it atomically.
struct KVCounts {
  uint64_t vectors;               // of K; as many of V
  uint64_t guarded_k, guarded_v;  // vectors that got a scale of their own under kGuarded
  uint64_t clipped_k, clipped_v;  // numbers beyond the type's largest
};

constexpr size_t kMaxHeadDim = 512;  // a multiple of 16 in any case

// One layer of a KVStorage (kv_storage.hpp), as its kernels address it.
struct KVLayerView {
  void* k;  // of block 0
  void* v;
  size_t num_blocks, block_size, num_kv_heads, head_dim;
  size_t block_stride;  // numbers from a block's K to the next block's
  KVType type;
  KVScales scales;
  bool bf16_products;      // attention multiplies in bf16 (kernels/attention_bf16.hpp); not of fp16 and fp32
  float k_scale, v_scale;  // the layer's
  uint16_t* k_own;         // bf16 scales of block 0's tokens [kv_heads, block_size], times the layer's; null under kNone and kStatic
  uint16_t* v_own;
  KVCounts* counts;  // null under kNone
};

// Of a token's own scales, from block 0's on. An 8-bit number is a byte, so block_stride is bytes here.
OCTAVO_INLINE size_t kv_own_index(const KVLayerView& kv, size_t block, size_t head, size_t token) {
  return block * (kv.block_stride / sizeof(uint16_t)) + head * kv.block_size + token;
}

// Tokens in a tile of K.
OCTAVO_INLINE size_t kv_tile_width(size_t block_size) {
  return block_size < 16 ? block_size : 16;
}

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
  float softcap;    // 0: none
  bool for_logits;  // of each sequence only rows from its first row of logits on are wanted
};

// The unit of work: all query heads of one KV head, for a run of one sequence's query rows.
struct AttentionItem {
  const int32_t* blocks;  // the sequence's block table
  size_t kv_head;
  size_t row;       // of the first token in q and out
  size_t tokens;    // rows row … row + tokens - 1
  size_t position;  // of the first token; the others follow
};

// Positions are attended in splits of this many, at multiples of it, each by itself; then the splits are combined in order.
constexpr size_t kSplit = 128;
// Query rows (token, head) in an item, unless one token alone has more heads.
constexpr size_t kItemRows = 64;

// What an item knows of the positions seen so far, as floats: per query row (token-major, then head) the largest score [rows], the sum of
// exp(score - largest) [rows], and the same sum of V [rows, head_dim]. All zero: nothing seen.
OCTAVO_INLINE size_t attention_state_floats(size_t rows, size_t head_dim) {
  return rows * (head_dim + 2);
}

// Only attention.cpp calls these.
struct AttentionKernels {
  // Adds splits [begin, end), in order, to the state, which moves on by ``step`` floats after each: to one state with 0, to one each with
  // attention_state_floats. Some row of the item sees a position of each split. scratch has scratch_floats(args).
  void (*attend)(const AttentionArgs&, const AttentionItem&, size_t begin, size_t end, float* state, size_t step, float* scratch);
  // Adds the states [1, count), in order, to the first, which ends up as the item's outputs; stores them in out.
  void (*finish)(const AttentionArgs&, const AttentionItem&, float* states, size_t count);
  size_t (*scratch_floats)(const AttentionArgs&);  // of attend
};

// Passes over one row of n logits, in chunks of kChunk (the last may be shorter). Only sampling.cpp calls these.
constexpr size_t kChunk = 64;

struct SamplingKernels {
  // The largest of each chunk. Returns false, with out unfinished, if a NaN or +infinity is among them.
  bool (*largest)(const float* logits, size_t n, float* out);
  // weights[i] = exp((logits[i] - largest) / temperature), or 0 if logits[i] < least. chunks: what the pass before gave.
  void (*weights)(const float* logits, size_t n, const float* chunks, float largest, float temperature, float least, float* weights);
  // The sum of each chunk in double precision.
  void (*sums)(const float* weights, size_t n, double* out);
  // How many are larger than bound.
  size_t (*count_above)(const float* logits, size_t n, float bound);
};

// ---- measuring loops (kernels/machine.hpp), for machine.cpp: what the best code could reach ----

struct MachineKernels {
  // Reads bytes (a multiple of 256) from data as four streams; returns something that depends on all of them.
  int32_t (*read)(const uint8_t* data, size_t bytes);
  // Multiply-adds in registers; each returns how many multiplications and additions it did. seed is any number from run time.
  double (*int8)(uint8_t seed);
  double (*bf16)(uint8_t seed);
  double (*fp32)(uint8_t seed);
};

}  // namespace octavo
