#define OCTAVO_ISA avx2
#include "isa/avx2.hpp"

#include "kernels/table.hpp"
