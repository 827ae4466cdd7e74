// Reading an op record: each getter checks one operand, and names it when it is wrong.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>

#include "program.hpp"

namespace octavo {

class OpReader {
public:
  OpReader(Program& program, const OpRecord& record) : program(program), record(record) {}

  [[noreturn]] void fail(const std::string& what) const { throw std::invalid_argument("op " + record.kind + ": " + what); }
  void require(bool condition, const std::string& what) const {
    if (!condition) fail(what);
  }

  // Exact numbers of operands.
  void expect(size_t inputs, size_t outputs, size_t weights, size_t ints, size_t floats) const;

  const Buffer& input(size_t i) const { return program.buffer(record.inputs.at(i)); }
  const Buffer& output(size_t i) const { return program.buffer(record.outputs.at(i)); }
  int input_number(size_t i) const { return record.inputs[i]; }
  int output_number(size_t i) const { return record.outputs[i]; }

  void input_is(size_t i, BufferKind kind, size_t columns = 0) const;
  void output_is(size_t i, BufferKind kind, size_t columns = 0) const;
  void output_like(size_t i, const Buffer& other) const;  // columns and rows
  // No output may be an input, but for those named (input, output).
  void allow_same(std::initializer_list<std::pair<size_t, size_t>> pairs) const;

  std::shared_ptr<const PackedWeight> matrix(size_t i) const;
  Vector vector(size_t i, size_t length) const;  // of fp32
  Vector optional_vector(size_t i, size_t length) const;
  std::vector<double> wide_vector(size_t i) const;  // of either width
  size_t integer(size_t i, const char* name, size_t least, size_t most) const;
  float number(size_t i) const { return static_cast<float>(record.floats.at(i)); }

  Program& program;
  const OpRecord& record;
};

// Rows that are worth a thread's attention, in elementwise ops.
inline size_t least_rows(size_t columns) {
  return 1 + 4096 / columns;
}

OpBody build_embed(const OpReader& op);
OpBody build_linear(const OpReader& op);
OpBody build_gated_linear(const OpReader& op);

}  // namespace octavo
