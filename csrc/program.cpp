#include "program.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

#include "cpu.hpp"

namespace octavo {
namespace {

BufferKind parse_kind(const std::string& kind) {
  for (BufferKind k : {BufferKind::kF32, BufferKind::kQ8, BufferKind::kBF16})
    if (kind == kind_name(k)) return k;
  throw std::invalid_argument("kind: '" + kind + "' is not f32, q8 or bf16");
}

RowsOf parse_rows(const std::string& rows) {
  if (rows == "tokens") return RowsOf::kTokens;
  if (rows == "logits") return RowsOf::kLogits;
  throw std::invalid_argument("rows: '" + rows + "' is not tokens or logits");
}

float widen_q8(const Rows& rows, size_t r, size_t column) {
  const size_t g = column / kQ8Group, i = column % kQ8Group;
  if (const float outlier = q8_outliers(rows, r)[g]; outlier != 0.0f && q8_places(rows, r)[g] == i) return outlier;
  const Q8Group& group = q8_row(rows, r)[g];
  return group.scale * group.codes[i];
}

float widen_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

void grow(Buffer& buffer, size_t rows) {
  if (rows <= buffer.capacity) return;
  const size_t wanted = std::max(rows, std::min(2 * buffer.capacity, buffer.capacity + 256));
  const size_t stride = row_stride(buffer.kind, buffer.columns);
  if (wanted > PTRDIFF_MAX / stride) throw std::bad_alloc();
  buffer.memory.reset();
  buffer.capacity = 0;
  buffer.memory = std::make_shared<Memory>(wanted * stride);
  buffer.capacity = wanted;
}

constexpr size_t kMaxColumns = size_t{1} << 31;
// Of the states of attention's splits. Only chunks of prefill at the end of long contexts use more.
constexpr size_t kTouchedStates = size_t{16} << 20;

}  // namespace

size_t row_stride(BufferKind kind, size_t columns) {
  switch (kind) {
    case BufferKind::kF32:
      return columns * sizeof(float);
    case BufferKind::kQ8:
      return q8_row_bytes(columns);
    case BufferKind::kBF16:
      return q8_groups(columns) * kQ8Group * sizeof(uint16_t);
  }
  return 0;
}

Rows StepContext::rows(int number) const {
  const Buffer& buffer = program.buffers_[static_cast<size_t>(number)];
  return {buffer.data(), row_stride(buffer.kind, buffer.columns), buffer.columns, buffer.kind};
}

size_t StepContext::count(int number) const {
  return program.buffers_[static_cast<size_t>(number)].rows_of == RowsOf::kTokens ? step.num_tokens : step.num_logits;
}

Program::Program(const std::string& isa, std::shared_ptr<ThreadPool> pool) : kernels_(kernels_for(isa)), pool_(std::move(pool)) {
  count_program();
}

int Program::add_buffer(const std::string& kind, size_t columns, const std::string& rows) {
  if (columns == 0 || columns >= kMaxColumns)
    throw std::invalid_argument("columns: " + std::to_string(columns) + " is not in 1 … 2^31 - 1");
  buffers_.push_back({parse_kind(kind), parse_rows(rows), columns, 0, nullptr});
  return static_cast<int>(buffers_.size()) - 1;
}

const Buffer& Program::buffer(int number) const {
  if (number < 0 || static_cast<size_t>(number) >= buffers_.size())
    throw std::invalid_argument("buffer: " + std::to_string(number) + " is not one of the program's " + std::to_string(buffers_.size()));
  return buffers_[static_cast<size_t>(number)];
}

void Program::add_op(OpRecord record) {
  OpBody body = build_op(*this, record);
  const auto known = std::find_if(timings_.begin(), timings_.end(), [&](const Timing& t) { return t.kind == record.kind; });
  timing_of_op_.push_back(static_cast<size_t>(known - timings_.begin()));
  if (known == timings_.end()) timings_.push_back({record.kind});
  records_.push_back(std::move(record));
  bodies_.push_back(std::move(body));
}

void Program::use_kv(KVUse use) {
  use.op = records_.size();
  kv_uses_.push_back(use);
}

size_t Program::add_rope(const std::vector<double>& inv_freq, double mscale) {
  for (size_t i = 0; i < ropes_.size(); ++i)
    if (ropes_[i].inv_freq == inv_freq && ropes_[i].mscale == mscale) return i;
  ropes_.push_back({inv_freq, mscale, {}, {}});
  return ropes_.size() - 1;
}

RopeTable Program::rope_table(size_t index) const {
  const RopeFrequencies& rope = ropes_[index];
  return {rope.cos.data(), rope.sin.data(), rope.inv_freq.size()};
}

// In float64, rounded once: cos and sin of position * inv_freq, times mscale.
void Program::compute_rope_tables(const Step& step) {
  for (RopeFrequencies& rope : ropes_) {
    const size_t pairs = rope.inv_freq.size();
    rope.cos.resize(std::max(rope.cos.size(), step.num_tokens * pairs));
    rope.sin.resize(rope.cos.size());
    pool_->parallel_ranges(step.num_tokens, 16, [&](size_t begin, size_t end) {
      for (size_t t = begin; t < end; ++t)
        for (size_t j = 0; j < pairs; ++j) {
          const double angle = step.positions[t] * rope.inv_freq[j];
          rope.cos[t * pairs + j] = static_cast<float>(std::cos(angle) * rope.mscale);
          rope.sin[t * pairs + j] = static_cast<float>(std::sin(angle) * rope.mscale);
        }
    });
  }
}

void Program::grow_rows(size_t tokens, size_t logits) {
  for (Buffer& buffer : buffers_) grow(buffer, buffer.rows_of == RowsOf::kTokens ? tokens : logits);
}

void Program::reserve(const std::vector<const KVStorage*>& kv, const StepLimits& limits) {
  for (const size_t limit : {limits.tokens, limits.logits, limits.seqs, limits.length})
    if (limit > INT32_MAX) throw std::invalid_argument("a step's limit: " + std::to_string(limit) + " is more than 2^31 - 1");
  std::lock_guard lock(running_);
  for (const KVUse& use : kv_uses_) check_layer(use, kv);
  grow_rows(limits.tokens, limits.logits);
  for (RopeFrequencies& rope : ropes_) {
    rope.cos.resize(std::max(rope.cos.size(), limits.tokens * rope.inv_freq.size()));
    rope.sin.resize(rope.cos.size());
  }
  groups_.reserve(kv.size());
  reach_.reserve(kv.size());
  written_.reserve(kv.size());
  reserve_attention_ops(kv, limits);
  std::vector<Reserved> parts;
  for (const Buffer& buffer : buffers_) {
    const size_t rows = buffer.rows_of == RowsOf::kTokens ? limits.tokens : std::min(limits.seqs, limits.logits);
    if (buffer.memory) parts.push_back({buffer.memory, rows * row_stride(buffer.kind, buffer.columns)});
  }
  const AttentionScratch& scratch = attention_scratch_;
  if (scratch.states) parts.push_back({scratch.states, std::min(scratch.states->bytes(), kTouchedStates)});
  for (const auto& memory : {scratch.threads, scratch.wide})
    if (memory) parts.push_back({memory, memory->bytes()});
  std::lock_guard list_lock(reserved_lock_);
  reserved_.swap(parts);
}

void Program::reserve_attention_ops(const std::vector<const KVStorage*>& kv, const StepLimits& limits) {
  for (const KVUse& use : kv_uses_) {
    if (!use.attends) continue;
    const Buffer& out = buffer(records_[use.op].outputs[0]);
    AttentionArgs args{};
    args.out = {nullptr, row_stride(out.kind, out.columns), out.columns, out.kind};
    args.kv = check_layer(use, kv);
    args.q_heads = use.heads;
    reserve_attention(kernels_, pool_->num_threads(), args, limits, attention_scratch_);
  }
}

size_t Program::reserved_bytes() const {
  std::lock_guard lock(reserved_lock_);
  size_t bytes = 0;
  for (const Reserved& part : reserved_) bytes += part.bytes;
  return bytes;
}

void Program::touch(size_t offset, size_t count) {
  while (count > 0) {
    const auto [memory, start, here] = reserved_at(offset, count);
    if (here == 0) return;
    if (memory) memory->touch(start, here);
    offset += here;
    count -= here;
  }
}

Program::ReservedRun Program::reserved_at(size_t offset, size_t count) const {
  std::lock_guard lock(reserved_lock_);
  for (const Reserved& part : reserved_) {
    if (offset < part.bytes) return {part.memory.lock(), offset, std::min(count, part.bytes - offset)};
    offset -= part.bytes;
  }
  return {nullptr, 0, 0};
}

void Program::run(const std::vector<const KVStorage*>& kv, const StepArrays& arrays) {
  std::lock_guard lock(running_);
  StepContext context = check_step(kv, arrays);
  grow_rows(context.step.num_tokens, context.step.num_logits);
  tokens_ = context.step.num_tokens;
  logits_ = context.step.num_logits;
  compute_rope_tables(context.step);
  run_ops(context);
}

void Program::run_ops(StepContext& context) {
  if (!timing_) {
    for (OpBody& body : bodies_) body(context);
    return;
  }
  for (size_t i = 0; i < bodies_.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    bodies_[i](context);
    Timing& timing = timings_[timing_of_op_[i]];
    timing.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ++timing.calls;
  }
}

void Program::set_timing(bool enabled) {
  timing_ = enabled;
  for (Timing& timing : timings_) timing = {timing.kind};
}

int Program::result_buffer() const {
  if (records_.empty() || records_.back().outputs.empty()) throw std::invalid_argument("the program's last op has no output");
  const int number = records_.back().outputs[0];
  if (buffer(number).kind != BufferKind::kF32) throw std::invalid_argument("the program's last output is not f32");
  return number;
}

size_t Program::num_rows(int number) const {
  return buffer(number).rows_of == RowsOf::kTokens ? tokens_ : logits_;
}

void Program::read(int number, float* out) const {
  const Buffer& b = buffer(number);
  const size_t stride = row_stride(b.kind, b.columns);
  const Rows rows{b.data(), stride, b.columns, b.kind};
  for (size_t r = 0; r < num_rows(number); ++r)
    for (size_t i = 0; i < b.columns; ++i) {
      float value = 0;
      if (b.kind == BufferKind::kF32)
        value = f32_row(rows, r)[i];
      else if (b.kind == BufferKind::kBF16)
        value = widen_bf16(bf16_row(rows, r)[i]);
      else
        value = widen_q8(rows, r, i);
      out[r * b.columns + i] = value;
    }
}

void Program::write(int number, const float* values, size_t rows) {
  Buffer& b = buffers_[static_cast<size_t>(&buffer(number) - buffers_.data())];
  if (b.kind != BufferKind::kF32) throw std::invalid_argument("buffer: only f32 buffers can be written");
  grow(b, rows);
  (b.rows_of == RowsOf::kTokens ? tokens_ : logits_) = rows;
  std::memcpy(b.data(), values, rows * b.columns * sizeof(float));
}

}  // namespace octavo
