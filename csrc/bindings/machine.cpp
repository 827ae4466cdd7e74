#include "bindings/bindings.hpp"

namespace octavo {

void bind_machine(nb::module_&) {}

}  // namespace octavo
