// Measures what this machine can do: read bandwidth, int8, bf16 and fp32 rates.
#pragma once

#include <vector>

namespace octavo {

// Per second, of all CPUs together; a multiply-add counts as two operations.
struct MachineRates {
  double read_bytes, int8_ops, bf16_flops, fp32_flops;
};

// One pinned thread a CPU, about ``seconds`` for each of the four rates. Throws std::invalid_argument on a CPU that this process may not
// use.
MachineRates measure_machine(const std::vector<int>& cpus, double seconds);

}  // namespace octavo
