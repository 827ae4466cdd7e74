// A program: op records over numbered buffers, checked when they are added and run in order, one call a step.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "attention.hpp"
#include "counters.hpp"
#include "kernel_table.hpp"
#include "kv_storage.hpp"
#include "memory.hpp"
#include "pool.hpp"
#include "weight.hpp"

namespace octavo {

enum class RowsOf { kTokens, kLogits };

struct Buffer {
  BufferKind kind;
  RowsOf rows_of;
  size_t columns;
  size_t capacity = 0;             // rows
  std::shared_ptr<Memory> memory;  // shared with views of it that Python holds: growing it must not pull it away under them

  uint8_t* data() const { return memory ? memory->data() : nullptr; }
};

// What an op is given besides buffers: a matrix, a vector of fp32 or fp64, or nothing.
using Vector = std::shared_ptr<const std::vector<float>>;
using WideVector = std::shared_ptr<const std::vector<double>>;
using Operand = std::variant<std::monostate, std::shared_ptr<const PackedWeight>, Vector, WideVector>;

struct OpRecord {
  std::string kind;
  std::vector<int> inputs, outputs;
  std::vector<Operand> weights;
  std::vector<int64_t> ints;
  std::vector<double> floats;
};

// A step's inputs as they come in; sizes are of the arrays themselves. See octavo.ops.spec.StepInputs.
struct StepArrays {
  struct Ints {
    const int32_t* data = nullptr;
    size_t size = 0;
  };
  struct Table {
    const int32_t* data = nullptr;
    size_t rows = 0, columns = 0;
  };
  Ints token_ids, positions, query_start, seq_lens, logits_rows;
  std::vector<Table> block_tables;
  std::vector<Ints> slot_mapping;
};

// Cosines and sines of the step's positions, shared by all ops with the same frequencies.
struct RopeFrequencies {
  std::vector<double> inv_freq;
  double mscale;
  StepVector<float> cos, sin;  // [T, pairs] of the step
};

// A use of KV storage that an op makes, checked in every step.
struct KVUse {
  size_t op;  // index, for messages
  size_t layer, group;
  size_t width;   // columns of K and V (kv_write), or of Q (attention)
  size_t heads;   // in width; 0: as many as the storage has KV heads
  size_t window;  // attention: 0 if it reads all positions
  bool attends;
};

class Program;

// What an op sees when it runs.
struct StepContext {
  Program& program;
  const KernelTable& kernels;
  ThreadPool& pool;
  const Step& step;
  const StepVector<GroupStep>& groups;
  const std::vector<const KVStorage*>& kv;

  Rows rows(int buffer) const;
  size_t count(int buffer) const;  // rows of a buffer in this step
};

using OpBody = std::function<void(StepContext&)>;

class Program {
public:
  // Throws std::invalid_argument if this CPU cannot run isa.
  Program(const std::string& isa, std::shared_ptr<ThreadPool> pool);

  int add_buffer(const std::string& kind, size_t columns, const std::string& rows);
  // Throws std::invalid_argument, naming the op and the operand, on any mismatch.
  void add_op(OpRecord record);
  // Makes room for any step within limits over KV such as kv: such steps allocate nothing. Of memory that is there already the pages stay
  // where they are. Throws std::invalid_argument if an op's KV is not there or has another shape, or a limit is over 2^31 - 1.
  void reserve(const std::vector<const KVStorage*>& kv, const StepLimits& limits);
  // Of what reserve made room for, what most steps use, as one run of bytes (rows of logits: limits.seqs).
  size_t reserved_bytes() const;
  // Makes the pages of bytes [offset, offset + count) of it present, as Memory::touch, from any thread beside any other call.
  void touch(size_t offset, size_t count);
  // Runs all ops; runs from several threads take turns. Throws std::invalid_argument if an input is out of bounds; then nothing has run.
  void run(const std::vector<const KVStorage*>& kv, const StepArrays& arrays);

  // fp32 values of a buffer's rows as of the last run or write: [rows, columns].
  size_t num_rows(int buffer) const;
  void read(int buffer, float* out) const;
  void write(int buffer, const float* values, size_t rows);

  // The output of the last op, which must be f32.
  int result_buffer() const;
  const Buffer& buffer(int number) const;

  void set_timing(bool enabled);
  struct Timing {
    std::string kind;
    double seconds = 0;
    int64_t calls = 0;
  };
  const std::vector<Timing>& timings() const { return timings_; }

  // ---- for ops (program_ops.cpp, program_matrix.cpp) ----
  const KernelTable& kernels() const { return kernels_; }
  size_t add_rope(const std::vector<double>& inv_freq, double mscale);
  RopeTable rope_table(size_t index) const;
  void use_vocab(size_t size) { vocab_ = vocab_ == 0 || size < vocab_ ? size : vocab_; }
  void use_kv(KVUse use);
  AttentionScratch& attention_scratch() { return attention_scratch_; }
  const std::vector<OpRecord>& records() const { return records_; }

private:
  friend struct StepContext;
  // Fills step_ and groups_.
  StepContext check_step(const std::vector<const KVStorage*>& kv, const StepArrays& arrays);
  KVLayerView check_layer(const KVUse& use, const std::vector<const KVStorage*>& kv) const;
  void check_kv(const StepContext& context, const StepArrays& arrays);
  void grow_rows(size_t tokens, size_t logits);
  void reserve_attention_ops(const std::vector<const KVStorage*>& kv, const StepLimits& limits);
  void compute_rope_tables(const Step& step);
  void run_ops(StepContext& context);

  const KernelTable& kernels_;
  std::shared_ptr<ThreadPool> pool_;
  std::mutex running_;
  std::vector<Buffer> buffers_;
  std::vector<OpRecord> records_;
  std::vector<OpBody> bodies_;
  std::vector<RopeFrequencies> ropes_;
  std::vector<KVUse> kv_uses_;
  size_t vocab_ = 0;
  size_t tokens_ = 0, logits_ = 0;  // rows of the last run
  Step step_{};
  StepVector<GroupStep> groups_;  // of step_
  StepVector<size_t> reach_;      // by group: the widest window that attends, 0 being no limit; SIZE_MAX: none does
  StepVector<char> written_;      // by group
  AttentionScratch attention_scratch_;
  struct Reserved {
    std::weak_ptr<Memory> memory;  // gone once a larger step has taken another
    size_t bytes;                  // of its beginning
  };
  struct ReservedRun {
    std::shared_ptr<Memory> memory;
    size_t start, count;
  };
  // What bytes [offset, …) of the room are, at most count of them in one memory; none past its end.
  ReservedRun reserved_at(size_t offset, size_t count) const;
  mutable std::mutex reserved_lock_;
  std::vector<Reserved> reserved_;
  bool timing_ = false;
  std::vector<Timing> timings_;
  std::vector<size_t> timing_of_op_;
};

// Bytes of a row of a buffer.
size_t row_stride(BufferKind kind, size_t columns);

// Checks a record against the program's buffers and binds its operands (program_ops.cpp).
OpBody build_op(Program& program, const OpRecord& record);

}  // namespace octavo
