#define OCTAVO_ISA neon_dotprod
#include "isa/neon.hpp"
#include "kernels/table.hpp"
