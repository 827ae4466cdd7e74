// Included last by each isa/*.cpp: all kernels, compiled for that instruction set, and the one symbol that leaves the unit.
#pragma once

#include "kernel_table.hpp"
// clang-format off: in order of dependence
#include "kernels/vector_math.hpp"
#include "kernels/activations.hpp"
#include "kernels/packing.hpp"
#include "kernels/unpacking.hpp"
#include "kernels/outliers.hpp"
#if defined(OCTAVO_NEON)
#include "isa/neon_tiles.hpp"
#else
#include "kernels/wide_tiles.hpp"
#endif
#include "kernels/linear.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/kv_types.hpp"
#include "kernels/kv_write.hpp"
#include "kernels/rope.hpp"
#include "kernels/attention.hpp"
#include "kernels/attention_bf16.hpp"
#include "kernels/sampling.hpp"
#include "kernels/machine.hpp"
// clang-format on

#define OCTAVO_STRING_(x) #x
#define OCTAVO_STRING(x) OCTAVO_STRING_(x)

namespace octavo::OCTAVO_ISA {

constinit const KernelTable kTable{
    .name = OCTAVO_STRING(OCTAVO_ISA),
    .linear = linear_kernels(),
    .elementwise = elementwise_kernels(),
    .rope = rope_kernels(),
    .attention = attention_kernels(),
    .sampling = sampling_kernels(),
    .machine = machine_kernels(),
};

}  // namespace octavo::OCTAVO_ISA
