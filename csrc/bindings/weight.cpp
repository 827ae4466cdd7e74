#include "weight.hpp"

#include <nanobind/stl/shared_ptr.h>

#include "bindings/bindings.hpp"

namespace octavo {
namespace {

std::shared_ptr<PackedWeight> make_weight(const std::string& isa, ThreadPool& pool, const std::string& format, size_t rows, size_t columns,
                                          Array<uint8_t, 1> data) {
  nb::gil_scoped_release release;
  return std::make_shared<PackedWeight>(isa, pool, format, rows, columns, data.data(), data.size());
}

nb::ndarray<nb::numpy, float> unpack_weight(const PackedWeight& weight) {
  auto out = new_array<float>({weight.view().rows, weight.view().columns});
  weight.unpack(out.data());
  return out;
}

}  // namespace

void bind_weight(nb::module_& m) {
  nb::class_<PackedWeight>(m, "PackedWeight")
      .def(nb::new_(&make_weight), nb::arg("isa"), nb::arg("pool"), nb::arg("format"), nb::arg("rows"), nb::arg("columns"), nb::arg("data"))
      .def_prop_ro("shape", [](const PackedWeight& w) { return nb::make_tuple(w.view().rows, w.view().columns); })
      .def_prop_ro("nbytes", &PackedWeight::nbytes)
      .def_prop_ro("run_format", &PackedWeight::run_format)
      .def_prop_ro("activation", [](const PackedWeight& w) { return kind_name(w.activation()); })
      .def("unpack", &unpack_weight);
}

}  // namespace octavo
