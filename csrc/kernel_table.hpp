// All kernels of one instruction set.
#pragma once

#include "kernels/linear_signatures.hpp"
#include "kernels/signatures.hpp"

namespace octavo {

// Raised whenever a kernel changes the bits it produces (part of numerics_id).
constexpr int kKernelVersion = 5;

struct KernelTable {
  const char* name;
  LinearKernels linear;
  ElementwiseKernels elementwise;
  RopeKernels rope;
  AttentionKernels attention;
  SamplingKernels sampling;
  MachineKernels machine;
};

namespace generic {
extern const KernelTable kTable;
}
namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}
namespace neon {
extern const KernelTable kTable;
}
namespace neon_dotprod {
extern const KernelTable kTable;
}
namespace neon_i8mm {
extern const KernelTable kTable;
}

}  // namespace octavo
