#include "bindings/bindings.hpp"
#include "kv_storage.hpp"

namespace octavo {
namespace {

nb::tuple read_block(const KVStorage& storage, size_t layer, size_t block) {
  const KVLayerView view = storage.layer(0);
  const std::initializer_list<size_t> shape{view.block_size, view.num_kv_heads, view.head_dim};
  auto k = new_array<float>(shape), v = new_array<float>(shape);
  storage.read(layer, block, k.data(), v.data());
  return nb::make_tuple(k, v);
}

}  // namespace

void bind_kv(nb::module_& m) {
  nb::class_<KVStorage>(m, "KVStorage")
      .def(nb::init<const std::string&, size_t, size_t, size_t, size_t, size_t, const std::string&>(), nb::arg("isa"),
           nb::arg("num_layers"), nb::arg("num_blocks"), nb::arg("block_size"), nb::arg("num_kv_heads"), nb::arg("head_dim"),
           nb::arg("dtype"))
      .def_prop_ro("nbytes", &KVStorage::nbytes)
      .def("read", read_block, nb::arg("layer"), nb::arg("block"));
}

}  // namespace octavo
