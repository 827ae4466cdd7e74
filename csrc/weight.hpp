// A matrix of weights, repacked for the kernels.
#pragma once

#include <string>

#include "kernel_table.hpp"
#include "memory.hpp"
#include "pool.hpp"

namespace octavo {

class PackedWeight {
public:
  // data: [rows * row bytes] as stored in `format`, a name of octavo.weights.formats; not kept. Throws std::invalid_argument.
  PackedWeight(const std::string& isa, ThreadPool& pool, const std::string& format, size_t rows, size_t columns, const uint8_t* data,
               size_t data_bytes);

  const WeightView& view() const { return view_; }
  const KernelTable& kernels() const { return *kernels_; }
  size_t nbytes() const { return nbytes_; }
  const std::string& run_format() const { return run_format_; }
  // What its inputs become in a linear op.
  BufferKind activation() const;
  // out: [rows, columns].
  void unpack(float* out) const;

private:
  const KernelTable* kernels_;
  WeightView view_;
  size_t nbytes_;
  std::string run_format_;
  MemoryPart memory_;
};

const char* kind_name(BufferKind kind);

}  // namespace octavo
