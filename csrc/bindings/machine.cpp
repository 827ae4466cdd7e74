#include "machine.hpp"

#include <nanobind/stl/vector.h>

#include "bindings/bindings.hpp"

namespace octavo {
namespace {

nb::dict machine_rates(const std::vector<int>& cpus, double seconds) {
  MachineRates rates;
  {
    nb::gil_scoped_release release;
    rates = measure_machine(cpus, seconds);
  }
  nb::dict named;
  named["read_bytes_s"] = rates.read_bytes;
  named["int8_ops_s"] = rates.int8_ops;
  named["bf16_flops_s"] = rates.bf16_flops;
  named["fp32_flops_s"] = rates.fp32_flops;
  return named;
}

}  // namespace

void bind_machine(nb::module_& m) {
  m.def("machine_rates", machine_rates, nb::arg("cpus"), nb::arg("seconds"));
}

}  // namespace octavo
