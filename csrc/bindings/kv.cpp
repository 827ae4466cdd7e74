#include "bindings/bindings.hpp"
#include "kv_storage.hpp"

namespace octavo {
namespace {

using BlockIds = Array<int32_t, 1>;
using OutBytes = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

nb::tuple read_block(const KVStorage& storage, size_t layer, size_t block) {
  const KVLayerView view = storage.layer(0);
  const std::initializer_list<size_t> shape{view.block_size, view.num_kv_heads, view.head_dim};
  auto k = new_array<float>(shape), v = new_array<float>(shape);
  storage.read(layer, block, k.data(), v.data());
  return nb::make_tuple(k, v);
}

void copy_blocks(KVStorage& storage, const BlockIds& src, const BlockIds& dst) {
  if (src.size() != dst.size()) throw std::invalid_argument("src and dst differ in length");
  nb::gil_scoped_release release;
  storage.copy_blocks(src.data(), dst.data(), src.size());
}

void check_shape(const KVStorage& storage, const char* name, const BlockIds& blocks, size_t rows, size_t columns) {
  if (rows == blocks.size() && columns == storage.block_bytes()) return;
  throw std::invalid_argument(std::string(name) + " is [" + std::to_string(rows) + ", " + std::to_string(columns) + "]: it must be [" +
                              std::to_string(blocks.size()) + ", " + std::to_string(storage.block_bytes()) + "]");
}

void export_into(const KVStorage& storage, const BlockIds& blocks, OutBytes out) {
  check_shape(storage, "out", blocks, out.shape(0), out.shape(1));
  nb::gil_scoped_release release;
  storage.export_blocks(blocks.data(), blocks.size(), out.data());
}

nb::object export_blocks(const KVStorage& storage, const BlockIds& blocks) {
  auto data = new_array<uint8_t>({blocks.size(), storage.block_bytes()});
  {
    nb::gil_scoped_release release;
    storage.export_blocks(blocks.data(), blocks.size(), data.data());
  }
  return nb::cast(data);
}

void import_blocks(KVStorage& storage, const BlockIds& blocks, const Array<uint8_t, 2>& data) {
  check_shape(storage, "data", blocks, data.shape(0), data.shape(1));
  nb::gil_scoped_release release;
  storage.import_blocks(blocks.data(), blocks.size(), data.data());
}

// Per layer: vectors, guarded K and V, clipped K and V.
nb::ndarray<nb::numpy, uint64_t> read_counts(const KVStorage& storage) {
  auto counts = new_array<uint64_t>({storage.num_layers(), 5});
  uint64_t* out = counts.data();
  for (const KVCounts& layer : storage.counts()) {
    for (const uint64_t n : {layer.vectors, layer.guarded_k, layer.guarded_v, layer.clipped_k, layer.clipped_v}) *out++ = n;
  }
  return counts;
}

}  // namespace

void bind_kv(nb::module_& m) {
  nb::class_<KVStorage>(m, "KVStorage")
      .def(nb::init<const std::string&, size_t, size_t, size_t, size_t, size_t, const std::string&, const std::string&, std::vector<float>,
                    bool>(),
           nb::arg("isa"), nb::arg("num_layers"), nb::arg("num_blocks"), nb::arg("block_size"), nb::arg("num_kv_heads"),
           nb::arg("head_dim"), nb::arg("dtype"), nb::arg("scales") = "none", nb::arg("layer_scales") = std::vector<float>(),
           nb::arg("bf16_products") = false)
      .def_prop_ro("nbytes", &KVStorage::nbytes)
      .def_prop_ro("block_bytes", &KVStorage::block_bytes)
      .def("touch_blocks", &KVStorage::touch_blocks, nb::arg("first"), nb::arg("count"), nb::call_guard<nb::gil_scoped_release>())
      .def("copy_blocks", copy_blocks, nb::arg("src"), nb::arg("dst"))
      .def("export_blocks", export_blocks, nb::arg("blocks"))
      .def("export_into", export_into, nb::arg("blocks"), nb::arg("out"))
      .def("import_blocks", import_blocks, nb::arg("blocks"), nb::arg("data"))
      .def("counts", read_counts)
      .def("read", read_block, nb::arg("layer"), nb::arg("block"));
}

}  // namespace octavo
