#include "bindings/bindings.hpp"

namespace octavo {

void bind_sampling(nb::module_&) {}

}  // namespace octavo
