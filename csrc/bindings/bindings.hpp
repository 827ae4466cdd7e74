// The Python side of the native module; src/octavo/_native.pyi is its type. std::invalid_argument becomes ValueError.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <stdexcept>

namespace octavo {

namespace nb = nanobind;

template <typename T, size_t Dims>
using Array = nb::ndarray<const T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;

// A new numpy array [shape] that owns its memory.
template <typename T>
nb::ndarray<nb::numpy, T> new_array(std::initializer_list<size_t> shape) {
  size_t count = 1;
  for (size_t n : shape) count *= n;
  T* data = new T[count == 0 ? 1 : count];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<nb::numpy, T>(data, shape, owner);
}

void bind_pool(nb::module_& m);
void bind_weight(nb::module_& m);
void bind_kv(nb::module_& m);
void bind_program(nb::module_& m);
void bind_sampling(nb::module_& m);
void bind_machine(nb::module_& m);

}  // namespace octavo
