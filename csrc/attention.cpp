#include "attention.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace octavo {
namespace {

// Below this many multiplications of q·k, waking other threads costs more than it gains.
constexpr size_t kAlone = size_t{1} << 16;
// Items of more than 1 / (kShares * threads) of a step's work are split, into tasks of at most 1 / (kRuns * threads).
constexpr size_t kShares = 4;
constexpr size_t kRuns = 16;

float* floats(std::shared_ptr<Memory>& memory, size_t count) {
  if (memory == nullptr || memory->bytes() < count * sizeof(float)) memory = std::make_shared<Memory>(count * sizeof(float) * 5 / 4);
  return reinterpret_cast<float*>(memory->data());
}

size_t heads_per_kv(const AttentionArgs& args) {
  return args.q_heads / args.kv.num_kv_heads;
}

size_t tokens_per_item(const AttentionArgs& args) {
  return std::max<size_t>(1, kItemRows / heads_per_kv(args));
}

// Of a thread's own memory.
size_t own_state_floats(const AttentionArgs& args) {
  return attention_state_floats(std::max(kItemRows, heads_per_kv(args)), args.kv.head_dim);
}

size_t own_floats(const AttentionKernels& kernels, const AttentionArgs& args) {
  return (own_state_floats(args) + kernels.scratch_floats(args) + 15) / 16 * 16;
}

// A group of 32 outputs that spans two KV heads belongs to two items: it is quantized after both.
bool quantizes_later(const AttentionArgs& args) {
  return args.out.kind != BufferKind::kF32 && heads_per_kv(args) * args.kv.head_dim % kQ8Group != 0;
}

size_t state_floats(const AttentionArgs& args, const AttentionItem& item) {
  return attention_state_floats(item.tokens * heads_per_kv(args), args.kv.head_dim);
}

// Splits [begin, end) that some token of the item sees.
std::pair<size_t, size_t> splits_of(const AttentionArgs& args, const AttentionItem& item) {
  const size_t seen = item.position + 1;
  const size_t first = args.window != 0 && seen > args.window ? seen - args.window : 0;
  return {first / kSplit, (item.position + item.tokens + kSplit - 1) / kSplit};
}

size_t work_of(const AttentionArgs& args, const AttentionItem& item) {
  const auto [begin, end] = splits_of(args, item);
  return item.tokens * heads_per_kv(args) * (std::min(end * kSplit, item.position + item.tokens) - begin * kSplit);
}

// Rows [begin, end) of a sequence's queries whose outputs somebody reads.
std::pair<size_t, size_t> wanted_rows(const AttentionArgs& args, size_t sequence) {
  const int32_t begin = args.step.query_start[sequence], end = args.step.query_start[sequence + 1];
  if (!args.for_logits) return {begin, end};
  const int32_t* last = args.step.logits_rows + args.step.num_logits;
  const int32_t* first = std::lower_bound(args.step.logits_rows, last, begin);
  return {first == last ? end : std::min(*first, end), end};
}

// One KV head's items of one sequence, the longest context first, so that the last task to be claimed is a short one.
void add_items(const AttentionArgs& args, size_t sequence, size_t kv_head, StepVector<AttentionItem>& items) {
  const size_t most = tokens_per_item(args);
  const auto [first, end] = wanted_rows(args, sequence);
  for (size_t count = (end - first + most - 1) / most; count-- > 0;) {
    const size_t row = first + count * most;
    items.push_back({
        .blocks = args.group.block_table + sequence * args.group.max_blocks,
        .kv_head = kv_head,
        .row = row,
        .tokens = std::min(most, end - row),
        .position = static_cast<size_t>(args.step.positions[row]),
    });
  }
}

// Tasks of items [i, i + heads), which are one row's KV heads. Where they are split, the heads take turns: a block's K and V lie together.
void add_tasks(const AttentionArgs& args, size_t i, size_t heads, size_t step_work, size_t num_threads, AttentionScratch& scratch) {
  const AttentionItem& item = scratch.items[i];
  const auto [begin, end] = splits_of(args, item);
  const size_t work = work_of(args, item);
  const bool split = num_threads > 1 && end - begin > 1 && work * kShares * num_threads > step_work;
  const size_t run = split ? std::max<size_t>(1, (end - begin) * step_work / (work * kRuns * num_threads)) : end - begin;
  for (size_t s = begin; s < end; s += run)
    for (size_t head = 0; head < heads; ++head) scratch.tasks.push_back({i + head, s, std::min(end, s + run), nullptr});
  if (!split) return;
  for (size_t head = 0; head < heads; ++head) {
    scratch.shared[i + head].count = end - begin;
    scratch.shared[i + head].pending = static_cast<uint32_t>(end - begin);
  }
}

// Gives each item that is split, and its tasks, their states.
void place_states(const AttentionArgs& args, AttentionScratch& scratch) {
  size_t states = 0;
  for (size_t i = 0; i < scratch.items.size(); ++i) states += scratch.shared[i].count * state_floats(args, scratch.items[i]);
  if (states == 0) return;
  float* next = floats(scratch.states, states);
  for (size_t i = 0; i < scratch.items.size(); ++i) {
    scratch.shared[i].states = next;
    next += scratch.shared[i].count * state_floats(args, scratch.items[i]);
  }
  for (AttentionTask& task : scratch.tasks) {
    const AttentionItem& item = scratch.items[task.item];
    const SharedItem& shared = scratch.shared[task.item];
    if (shared.count != 0) task.state = shared.states + (task.begin - splits_of(args, item).first) * state_floats(args, item);
  }
}

// Fills items, tasks and shared. Returns the step's work.
size_t plan(const AttentionArgs& args, size_t num_threads, AttentionScratch& scratch) {
  scratch.items.clear();
  scratch.tasks.clear();
  for (size_t sequence = 0; sequence < args.step.num_seqs; ++sequence) {
    for (size_t head = 0; head < args.kv.num_kv_heads; ++head) add_items(args, sequence, head, scratch.items);
  }
  size_t work = 0;
  for (const AttentionItem& item : scratch.items) work += work_of(args, item);
  scratch.shared.assign(scratch.items.size(), {});
  for (size_t i = 0, heads = 1; i < scratch.items.size(); i += heads) {
    for (heads = 1; i + heads < scratch.items.size() && scratch.items[i + heads].row == scratch.items[i].row;) ++heads;
    add_tasks(args, i, heads, work, num_threads, scratch);
  }
  place_states(args, scratch);
  return work;
}

// Runs one task on a thread whose own memory holds a state and the kernel's scratch.
void run_task(const AttentionKernels& kernels, const AttentionArgs& args, AttentionScratch& scratch, const AttentionTask& task, float* own,
              size_t own_state) {
  const AttentionItem& item = scratch.items[task.item];
  const bool shares = task.state != nullptr;
  float* state = shares ? task.state : own;
  const size_t each = state_floats(args, item), count = shares ? task.end - task.begin : 1;
  std::memset(state, 0, count * each * sizeof(float));
  kernels.attend(args, item, task.begin, task.end, state, shares ? each : 0, own + own_state);
  if (!shares) return kernels.finish(args, item, state, 1);
  SharedItem& shared = scratch.shared[task.item];
  const auto done = static_cast<uint32_t>(count);
  if (std::atomic_ref(shared.pending).fetch_sub(done, std::memory_order_acq_rel) == done)
    kernels.finish(args, item, shared.states, shared.count);
}

void run_tasks(const AttentionKernels& kernels, ThreadPool& pool, const AttentionArgs& args, AttentionScratch& scratch) {
  const size_t work = plan(args, pool.num_threads(), scratch);
  const size_t own_state = own_state_floats(args), stride = own_floats(kernels, args);
  float* memory = floats(scratch.threads, stride * pool.num_threads());
  const auto run = [&](size_t task, size_t worker) {
    run_task(kernels, args, scratch, scratch.tasks[task], memory + worker * stride, own_state);
  };
  if (work * args.kv.head_dim >= kAlone) return pool.parallel_for(scratch.tasks.size(), run);
  for (size_t task = 0; task < scratch.tasks.size(); ++task) run(task, 0);
}

}  // namespace

void reserve_attention(const KernelTable& kernels, size_t num_threads, const AttentionArgs& args, const StepLimits& limits,
                       AttentionScratch& scratch) {
  // A sequence's last item may be a short one. Fewer than kShares * num_threads items can be large enough to be split.
  const size_t seqs = std::min(limits.seqs, limits.tokens);
  const size_t items = args.kv.num_kv_heads * (limits.tokens / tokens_per_item(args) + seqs);
  const size_t large = num_threads > 1 ? std::min(items, kShares * num_threads - 1) : 0;
  const size_t splits = large * ((limits.length + kSplit - 1) / kSplit);
  scratch.items.reserve(items);
  scratch.shared.reserve(items);
  scratch.tasks.reserve(items + splits);
  floats(scratch.states, splits * own_state_floats(args));
  floats(scratch.threads, own_floats(kernels.attention, args) * num_threads);
  if (quantizes_later(args)) floats(scratch.wide, limits.tokens * args.out.columns);
}

void run_attention(const KernelTable& kernels, ThreadPool& pool, const AttentionArgs& args, AttentionScratch& scratch) {
  if (!quantizes_later(args)) return run_tasks(kernels.attention, pool, args, scratch);
  const size_t columns = args.out.columns, tokens = args.step.num_tokens;
  AttentionArgs wide = args;
  wide.out = {floats(scratch.wide, tokens * columns), columns * sizeof(float), columns, BufferKind::kF32};
  run_tasks(kernels.attention, pool, wide, scratch);
  const QuantizeArgs quantize{wide.out, args.out};
  pool.parallel_ranges(tokens, 16, [&](size_t begin, size_t end) { kernels.elementwise.quantize(quantize, begin, end); });
}

}  // namespace octavo
