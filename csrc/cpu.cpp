#include "cpu.hpp"

#include <stdexcept>

namespace octavo {
namespace {

// The compiler's run-time library checks XCR0 too: a feature counts only if the operating system saves its registers.
std::vector<const KernelTable*> supported_tables() {
  std::vector<const KernelTable*> tables;
#if OCTAVO_X86
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") &&
                      __builtin_cpu_supports("avx512bf16");
  if (avx512) tables.push_back(&avx512::kTable);
  if (avx2) tables.push_back(&avx2::kTable);
#endif
  tables.push_back(&generic::kTable);
  return tables;
}

}  // namespace

std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  for (const KernelTable* table : supported_tables()) names.emplace_back(table->name);
  return names;
}

const KernelTable& kernels_for(const std::string& isa) {
  std::string names;
  for (const KernelTable* table : supported_tables()) {
    if (isa == table->name) return *table;
    names += names.empty() ? table->name : std::string(", ") + table->name;
  }
  throw std::invalid_argument("isa: this CPU cannot run '" + isa + "'; it can run " + names);
}

}  // namespace octavo
