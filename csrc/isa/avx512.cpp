#define OCTAVO_ISA avx512
#include "isa/avx512.hpp"

#include "kernels/table.hpp"
