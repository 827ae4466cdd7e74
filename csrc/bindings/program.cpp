#include "bindings/bindings.hpp"

namespace octavo {

void bind_program(nb::module_&) {}

}  // namespace octavo
