#include "bindings/bindings.hpp"
#include "cpu.hpp"

namespace nb = nanobind;

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // objects that live until the interpreter exits are no leaks
  m.attr("KERNEL_VERSION") = octavo::kKernelVersion;
  m.def("supported_isas", &octavo::supported_isas);
  octavo::bind_pool(m);
  octavo::bind_weight(m);
  octavo::bind_kv(m);
  octavo::bind_program(m);
  octavo::bind_sampling(m);
  octavo::bind_machine(m);
}
