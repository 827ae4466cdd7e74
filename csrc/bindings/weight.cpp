#include "bindings/bindings.hpp"

namespace octavo {

void bind_weight(nb::module_&) {}

}  // namespace octavo
