#define OCTAVO_ISA neon
#include "isa/neon.hpp"

#include "kernels/table.hpp"
