#define OCTAVO_ISA generic
#include "isa/generic.hpp"

#include "kernels/table.hpp"
