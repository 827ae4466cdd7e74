// Attention of a step: splits it into work items, runs them, and combines the splits of long contexts in order of position.
#pragma once

#include "kernel_table.hpp"
#include "memory.hpp"
#include "pool.hpp"

namespace octavo {

// Scratch of attention ops; the program has one for all its layers, which grows when a step needs more.
struct AttentionScratch {
  Memory memory;
};

void run_attention(const KernelTable& kernels, ThreadPool& pool, const AttentionArgs& args, AttentionScratch& scratch);

}  // namespace octavo
