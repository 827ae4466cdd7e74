#include "bindings/bindings.hpp"

namespace octavo {

void bind_kv(nb::module_&) {}

}  // namespace octavo
