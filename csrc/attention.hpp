// Attention of a step: splits it into work items, runs them, and combines the splits of long contexts in order of position.
#pragma once

#include <memory>

#include "counters.hpp"
#include "kernel_table.hpp"
#include "memory.hpp"
#include "pool.hpp"

namespace octavo {

// What a thread claims: all of an item's splits, or a run of them where the item is a large part of the step.
struct AttentionTask {
  size_t item;
  size_t begin, end;  // splits
  float* state;       // of the first of them, the others' follow; null: the item is this thread's alone
};

// An item whose splits are tasks of their own.
struct SharedItem {
  float* states;     // one per split, in order
  size_t count;      // splits
  uint32_t pending;  // splits not done yet; accessed atomically while tasks run
};

// Scratch of attention ops; the program has one for all its layers, which grows when a step needs more.
struct AttentionScratch {
  StepVector<AttentionItem> items;
  StepVector<AttentionTask> tasks;
  StepVector<SharedItem> shared;    // by item; unused where the item has one task
  std::shared_ptr<Memory> states;   // of shared items
  std::shared_ptr<Memory> threads;  // per thread: a state, then the kernel's scratch
  std::shared_ptr<Memory> wide;     // fp32 outputs, where the kernel cannot quantize them by itself
};

// The largest step that is foreseen.
struct StepLimits {
  size_t tokens, logits, seqs;
  size_t length;  // of one sequence
};

// Makes room for any step within limits. Of args, the step and what belongs to it are not looked at.
void reserve_attention(const KernelTable& kernels, size_t num_threads, const AttentionArgs& args, const StepLimits& limits,
                       AttentionScratch& scratch);

void run_attention(const KernelTable& kernels, ThreadPool& pool, const AttentionArgs& args, AttentionScratch& scratch);

}  // namespace octavo
