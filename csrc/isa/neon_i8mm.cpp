#define OCTAVO_ISA neon_i8mm
#include "isa/neon.hpp"
#include "kernels/table.hpp"
