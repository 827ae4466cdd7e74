#include "pool.hpp"

#include "bindings/bindings.hpp"

namespace octavo {

void bind_pool(nb::module_& m) {
  nb::class_<ThreadPool>(m, "ThreadPool")
      .def(nb::init<std::vector<int>>(), nb::arg("cpus"))
      .def_prop_ro("num_threads", &ThreadPool::num_threads)
      .def("close", &ThreadPool::close, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace octavo
