// The loops that measure a machine: they read what they are to read, and count what they do.
#include "check.hpp"

namespace octavo::test {

void test_machine(const Subject& subject) {
  const MachineKernels& kernels = subject.kernels.machine;
  Random random(121);
  std::vector<int32_t> numbers(1 << 12);
  uint32_t sum = 0;
  for (int32_t& number : numbers) {
    number = static_cast<int32_t>(random.bits());
    sum += static_cast<uint32_t>(number);
  }
  const int32_t got = kernels.read(reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(int32_t));
  subject.report.hold(got == static_cast<int32_t>(sum), "reading four streams");
  for (const auto spin : {kernels.int8, kernels.bf16, kernels.fp32}) subject.report.hold(spin(1) > 1e6, "multiply-adds counted");
}

}  // namespace octavo::test
