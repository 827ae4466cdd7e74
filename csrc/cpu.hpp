// Which instruction sets this CPU (and operating system) can run.
#pragma once

#include <string>
#include <vector>

#include "kernel_table.hpp"

namespace octavo {

// Best first. "generic" is always there.
std::vector<std::string> supported_isas();

// The kernels of an instruction set. Throws std::invalid_argument if this CPU, or this build, lacks it.
const KernelTable& kernels_for(const std::string& isa);

}  // namespace octavo
