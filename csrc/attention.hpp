// Attention of a step: splits it into work items, runs them, and combines the splits of long contexts in order of position.
#pragma once

#include <vector>

#include "kernel_table.hpp"
#include "memory.hpp"
#include "pool.hpp"

namespace octavo {

// What a thread claims: all of an item's splits, or one of them where the item is a large part of the step.
struct AttentionTask {
  size_t item;
  size_t begin, end;  // splits
  float* state;       // of this split; null: the item is this thread's alone
};

// An item whose splits are tasks of their own.
struct SharedItem {
  float* states;     // one per split, in order
  size_t count;      // splits
  uint32_t pending;  // splits not done yet; accessed atomically while tasks run
};

// Scratch of attention ops; the program has one for all its layers, which grows when a step needs more.
struct AttentionScratch {
  std::vector<AttentionItem> items;
  std::vector<AttentionTask> tasks;
  std::vector<SharedItem> shared;  // by item; unused where the item has one task
  Memory states;                   // of shared items
  Memory threads;                  // per thread: a state, then the kernel's scratch
  Memory wide;                     // fp32 outputs, where the kernel cannot quantize them by itself
};

void run_attention(const KernelTable& kernels, ThreadPool& pool, const AttentionArgs& args, AttentionScratch& scratch);

}  // namespace octavo
