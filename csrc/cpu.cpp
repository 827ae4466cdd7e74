#include "cpu.hpp"

#include <stdexcept>

#if OCTAVO_ARM
#include <sys/auxv.h>
#endif

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
#if OCTAVO_ARM
  // Bits of the kernel's arch/arm64/include/uapi/asm/hwcap.h. The compiler may use the atomics (LSE) of any CPU that has dot products.
  constexpr unsigned long kAtomics = 1ul << 8, kDotProd = 1ul << 20, kI8MM = 1ul << 13, kBF16 = 1ul << 14;
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  const bool dotprod = (first & kDotProd) && (first & kAtomics);
  if (dotprod && (second & kI8MM) && (second & kBF16)) tables.push_back(&neon_i8mm::kTable);
  if (dotprod) tables.push_back(&neon_dotprod::kTable);
  tables.push_back(&neon::kTable);
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
