// Checks of a step's inputs: whatever passes, kernels can run without looking.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "program.hpp"

namespace octavo {
namespace {

using Ints = StepArrays::Ints;

[[noreturn]] void fail(const std::string& what) {
  throw std::invalid_argument(what);
}

template <typename Name>
void check_size(Name name, size_t size, size_t wanted) {
  if (size != wanted) fail(name() + ": " + std::to_string(size) + " entries, not " + std::to_string(wanted));
}

// Each value in [0, limit). name() makes the name: only what fails pays for text.
template <typename Name>
void check_range(Name name, const int32_t* values, size_t count, size_t limit) {
  for (size_t i = 0; i < count; ++i)
    if (values[i] < 0 || static_cast<size_t>(values[i]) >= limit)
      fail(name() + "[" + std::to_string(i) + "]: " + std::to_string(values[i]) + " is not in 0 … " + std::to_string(limit) + " - 1");
}

// Sequences cut the rows into runs that are not empty, and each run is its sequence's last positions.
void check_sequences(const Step& step) {
  if (step.query_start[0] != 0) fail("query_start[0]: " + std::to_string(step.query_start[0]) + " is not 0");
  for (size_t s = 0; s < step.num_seqs; ++s) {
    const auto name = [s] { return "[" + std::to_string(s) + "]"; };
    const int64_t begin = step.query_start[s], end = step.query_start[s + 1], length = step.seq_lens[s];
    if (end <= begin || end > static_cast<int64_t>(step.num_tokens))
      fail("query_start" + name() + ": runs must rise and end at the last row");
    if (length < end - begin) fail("seq_lens" + name() + ": " + std::to_string(length) + " is less than the sequence's rows");
    for (int64_t t = begin; t < end; ++t)
      if (step.positions[t] != length - end + t)
        fail("positions[" + std::to_string(t) + "]: " + std::to_string(step.positions[t]) + ", where seq_lens" + name() + " asks for " +
             std::to_string(length - end + t));
  }
  if (step.query_start[step.num_seqs] != static_cast<int32_t>(step.num_tokens))
    fail("query_start: the last entry is not the number of rows");
}

// The blocks that hold positions first … length - 1 of each sequence, first being what its first query's window reaches.
void check_block_table(size_t g, const Step& step, const GroupStep& group, size_t window, const KVLayerView& kv) {
  const auto name = [g] { return "block_tables[" + std::to_string(g) + "]"; };
  const size_t block_size = kv.block_size;
  for (size_t s = 0; s < step.num_seqs; ++s) {
    const size_t length = static_cast<size_t>(step.seq_lens[s]),
                 queries = static_cast<size_t>(step.query_start[s + 1] - step.query_start[s]);
    const size_t blocks = (length + block_size - 1) / block_size, query = length - queries;
    const size_t first = window == 0 || query + 1 <= window ? 0 : (query + 1 - window) / block_size;
    if (blocks > group.max_blocks)
      fail(name() + ": " + std::to_string(group.max_blocks) + " columns, where sequence " + std::to_string(s) + " has " +
           std::to_string(blocks) + " blocks");
    check_range([&] { return name() + "[" + std::to_string(s) + "] from " + std::to_string(first) + " on"; },
                group.block_table + s * group.max_blocks + first, blocks - first, kv.num_blocks);
  }
}

}  // namespace

StepContext Program::check_step(const std::vector<const KVStorage*>& kv, const StepArrays& a) {
  Step& step = step_ = {};
  step.num_tokens = a.token_ids.size;
  step.num_seqs = a.seq_lens.size;
  step.num_logits = a.logits_rows.size;
  if (step.num_tokens == 0 || step.num_tokens > INT32_MAX) fail("token_ids: at least one, and fewer than 2^31, are needed");
  check_size([] { return std::string("positions"); }, a.positions.size, step.num_tokens);
  check_size([] { return std::string("query_start"); }, a.query_start.size, step.num_seqs + 1);
  step.token_ids = a.token_ids.data;
  step.positions = a.positions.data;
  step.query_start = a.query_start.data;
  step.seq_lens = a.seq_lens.data;
  step.logits_rows = a.logits_rows.data;
  if (vocab_ > 0) check_range([] { return std::string("token_ids"); }, step.token_ids, step.num_tokens, vocab_);
  check_range([] { return std::string("positions"); }, step.positions, step.num_tokens, INT32_MAX);
  check_range([] { return std::string("logits_rows"); }, step.logits_rows, step.num_logits, step.num_tokens);
  if (!std::is_sorted(step.logits_rows, step.logits_rows + step.num_logits)) fail("logits_rows: they must rise");
  check_sequences(step);

  groups_.clear();
  for (size_t g = 0; g < std::min(a.block_tables.size(), a.slot_mapping.size()); ++g)
    groups_.push_back({a.block_tables[g].data, a.block_tables[g].columns, a.slot_mapping[g].data});
  StepContext context{*this, kernels_, *pool_, step_, groups_, kv};
  check_kv(context, a);
  return context;
}

// The KV layer that an op reads or writes is there and has the op's shape.
KVLayerView Program::check_layer(const KVUse& use, const std::vector<const KVStorage*>& kv) const {
  const auto name = [&] { return "op " + std::to_string(use.op) + " " + records_[use.op].kind + ": "; };
  if (use.group >= kv.size() || kv[use.group] == nullptr) fail(name() + "there is no KV of group " + std::to_string(use.group));
  const KVStorage& storage = *kv[use.group];
  if (&storage.kernels() != &kernels_) fail(name() + "the KV storage is laid out for " + storage.kernels().name);
  if (use.layer >= storage.num_layers())
    fail(name() + "layer " + std::to_string(use.layer) + " of a group of " + std::to_string(storage.num_layers()));
  const KVLayerView layer = storage.layer(use.layer);
  const size_t heads = use.heads == 0 ? layer.num_kv_heads : use.heads;
  if (use.width != heads * layer.head_dim || (use.attends ? heads % layer.num_kv_heads != 0 : heads != layer.num_kv_heads))
    fail(name() + std::to_string(use.width) + " columns in " + std::to_string(heads) + " heads do not fit " +
         std::to_string(layer.num_kv_heads) + " KV heads of " + std::to_string(layer.head_dim));
  return layer;
}

// Every KV layer that an op reads or writes is there and has the op's shape; every group in use has valid blocks and slots.
void Program::check_kv(const StepContext& context, const StepArrays& a) {
  reach_.assign(context.groups.size(), SIZE_MAX);
  written_.assign(context.groups.size(), 0);
  for (const KVUse& use : kv_uses_) {
    if (use.group >= context.groups.size())
      fail("op " + std::to_string(use.op) + ": the step has no block table or slots of group " + std::to_string(use.group));
    check_layer(use, context.kv);
    if (!use.attends)
      written_[use.group] = 1;
    else if (use.window == 0 || reach_[use.group] == 0)
      reach_[use.group] = 0;
    else
      reach_[use.group] = reach_[use.group] == SIZE_MAX ? use.window : std::max(reach_[use.group], use.window);
  }
  for (size_t g = 0; g < context.groups.size(); ++g) {
    const auto name = [g](const char* array) { return std::string(array) + "[" + std::to_string(g) + "]"; };
    if (!written_[g] && reach_[g] == SIZE_MAX) continue;
    const KVLayerView kv = context.kv[g]->layer(0);
    if (written_[g]) {
      check_size([&] { return name("slot_mapping"); }, a.slot_mapping[g].size, context.step.num_tokens);
      check_range([&] { return name("slot_mapping"); }, context.groups[g].slots, context.step.num_tokens, kv.num_blocks * kv.block_size);
    }
    if (reach_[g] == SIZE_MAX) continue;
    check_size([&] { return name("block_tables") + " rows"; }, a.block_tables[g].rows, context.step.num_seqs);
    check_block_table(g, context.step, context.groups[g], reach_[g], kv);
  }
}

}  // namespace octavo
