#include "program.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

#include "bindings/bindings.hpp"
#include "counters.hpp"

namespace octavo {
namespace {

using Int32Vector = Array<int32_t, 1>;
using Int32Table = Array<int32_t, 2>;

Operand to_operand(nb::handle item) {
  if (item.is_none()) return {};
  if (nb::isinstance<PackedWeight>(item)) return std::shared_ptr<const PackedWeight>(nb::cast<std::shared_ptr<PackedWeight>>(item));
  Array<double, 1> wide;
  if (nb::try_cast(item, wide, false)) return std::make_shared<const std::vector<double>>(wide.data(), wide.data() + wide.size());
  Array<float, 1> narrow;
  if (nb::try_cast(item, narrow, false)) return std::make_shared<const std::vector<float>>(narrow.data(), narrow.data() + narrow.size());
  throw std::invalid_argument("weights: each is a PackedWeight, a contiguous vector of float32 or float64, or None");
}

void add_op(Program& program, const std::string& kind, std::vector<int> inputs, std::vector<int> outputs, nb::sequence weights,
            std::vector<int64_t> ints, std::vector<double> floats) {
  OpRecord record{kind, std::move(inputs), std::move(outputs), {}, std::move(ints), std::move(floats)};
  for (nb::handle item : weights) record.weights.push_back(to_operand(item));
  program.add_op(std::move(record));
}

StepArrays::Ints ints(const Int32Vector& a) {
  return {a.data(), a.size()};
}

std::vector<const KVStorage*> storages(nb::object kv) {
  if (kv.is_none()) return {};
  if (nb::isinstance<KVStorage>(kv)) return {nb::cast<const KVStorage*>(kv)};
  std::vector<const KVStorage*> all;
  for (nb::handle item : nb::cast<nb::sequence>(kv)) all.push_back(nb::cast<const KVStorage*>(item));
  return all;
}

nb::ndarray<nb::numpy, float> run(Program& program, nb::object kv, Int32Vector token_ids, Int32Vector positions, Int32Vector query_start,
                                  Int32Vector seq_lens, std::vector<Int32Table> block_tables, std::vector<Int32Vector> slot_mapping,
                                  Int32Vector logits_rows) {
  StepArrays arrays{ints(token_ids), ints(positions), ints(query_start), ints(seq_lens), ints(logits_rows), {}, {}};
  for (const Int32Table& table : block_tables) arrays.block_tables.push_back({table.data(), table.shape(0), table.shape(1)});
  for (const Int32Vector& slots : slot_mapping) arrays.slot_mapping.push_back(ints(slots));
  const std::vector<const KVStorage*> kv_storages = storages(kv);
  const int result = program.result_buffer();
  {
    nb::gil_scoped_release release;
    program.run(kv_storages, arrays);
  }
  const Buffer& buffer = program.buffer(result);
  const size_t shape[] = {program.num_rows(result), buffer.columns};
  nb::capsule owner(new std::shared_ptr<Memory>(buffer.memory), [](void* p) noexcept { delete static_cast<std::shared_ptr<Memory>*>(p); });
  return nb::ndarray<nb::numpy, float>(buffer.data(), 2, shape, owner);
}

void reserve(Program& program, nb::object kv, size_t max_tokens, size_t max_logits, size_t max_seqs, size_t max_length) {
  const std::vector<const KVStorage*> kv_storages = storages(kv);
  const StepLimits limits{max_tokens, max_logits, max_seqs, max_length};
  nb::gil_scoped_release release;
  program.reserve(kv_storages, limits);
}

nb::ndarray<nb::numpy, float> read(const Program& program, int buffer) {
  auto out = new_array<float>({program.num_rows(buffer), program.buffer(buffer).columns});
  program.read(buffer, out.data());
  return out;
}

void write(Program& program, int buffer, Array<float, 2> values) {
  if (values.shape(1) != program.buffer(buffer).columns)
    throw std::invalid_argument("values: " + std::to_string(values.shape(1)) + " columns, not " +
                                std::to_string(program.buffer(buffer).columns));
  program.write(buffer, values.data(), values.shape(0));
}

std::vector<std::tuple<std::string, double, int64_t>> timings(const Program& program) {
  std::vector<std::tuple<std::string, double, int64_t>> all;
  for (const Program::Timing& t : program.timings()) all.emplace_back(t.kind, t.seconds, t.calls);
  return all;
}

}  // namespace

void bind_program(nb::module_& m) {
  m.def("counters", [] {
    const Counters now = counters();
    return std::make_tuple(now.allocations, now.allocated_bytes, now.programs, now.threads);
  });
  nb::class_<Program>(m, "Program")
      .def(nb::init<const std::string&, std::shared_ptr<ThreadPool>>(), nb::arg("isa"), nb::arg("pool"))
      .def("add_buffer", &Program::add_buffer, nb::arg("kind"), nb::arg("columns"), nb::arg("rows"))
      .def("add_op", &add_op, nb::arg("kind"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("weights"), nb::arg("ints"),
           nb::arg("floats"))
      .def("reserve", &reserve, nb::arg("kv").none(), nb::arg("max_tokens"), nb::arg("max_logits"), nb::arg("max_seqs"),
           nb::arg("max_length"))
      .def_prop_ro("reserved_bytes", &Program::reserved_bytes)
      .def("touch", &Program::touch, nb::arg("offset"), nb::arg("count"), nb::call_guard<nb::gil_scoped_release>())
      .def("run", &run, nb::arg("kv").none(), nb::arg("token_ids").noconvert(), nb::arg("positions").noconvert(),
           nb::arg("query_start").noconvert(), nb::arg("seq_lens").noconvert(), nb::arg("block_tables").noconvert(),
           nb::arg("slot_mapping").noconvert(), nb::arg("logits_rows").noconvert())
      .def("read", &read, nb::arg("buffer"))
      .def("write", &write, nb::arg("buffer"), nb::arg("values").noconvert())
      .def("set_timing", &Program::set_timing, nb::arg("enabled"))
      .def("timings", &timings);
}

}  // namespace octavo
