#include "sampling.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>
#include <vector>

#include "bindings/bindings.hpp"
#include "cpu.hpp"

namespace octavo {
namespace {

const KernelTable& kernels_or_best(const std::optional<std::string>& isa) {
  return kernels_for(isa ? *isa : supported_isas().front());
}

Logits logits_of(const Array<float, 2>& array) {
  if (array.shape(1) == 0 || array.shape(1) > INT32_MAX) throw std::invalid_argument("logits: the vocabulary must not be empty");
  return {array.data(), array.shape(0), array.shape(1)};
}

void need_rows(const char* name, size_t count, size_t rows) {
  if (count != rows)
    throw std::invalid_argument(std::string(name) + ": " + std::to_string(count) + " values for " + std::to_string(rows) + " rows");
}

// The rules of a batch: what of them stays from token to token.
struct BatchRules {
  std::vector<float> temperature;
  std::vector<int32_t> top_k;
  std::vector<float> top_p, min_p;
  std::vector<uint64_t> seeds;

  void check() const {
    need_rows("top_k", top_k.size(), temperature.size());
    need_rows("top_p", top_p.size(), temperature.size());
    need_rows("min_p", min_p.size(), temperature.size());
    need_rows("seeds", seeds.size(), temperature.size());
  }
};

// What a call works in: the caller's scratch, or one of its own.
class ScratchOrOwn {
public:
  ScratchOrOwn(SamplingScratch* scratch, const ThreadPool& pool) : own_(scratch == nullptr ? pool.num_threads() : 0), scratch_(scratch) {
    if (scratch != nullptr && scratch->num_workers() < pool.num_threads())
      throw std::invalid_argument("scratch: it was made for a pool of " + std::to_string(scratch->num_workers()) + " threads, not " +
                                  std::to_string(pool.num_threads()));
  }
  SamplingScratch& get() { return scratch_ != nullptr ? *scratch_ : own_; }

private:
  SamplingScratch own_;
  SamplingScratch* scratch_;
};

std::vector<int32_t> sample_rows(ThreadPool& pool, Array<float, 2> logits, const BatchRules& batch, const std::vector<int32_t>& indices,
                                 const std::optional<std::string>& isa, SamplingScratch* scratch) {
  ScratchOrOwn room(scratch, pool);
  const KernelTable& kernels = kernels_or_best(isa);
  const Logits rows = logits_of(logits);
  need_rows("rules", batch.temperature.size(), rows.rows);
  need_rows("indices", indices.size(), rows.rows);
  const SamplingRules rules{batch.temperature.data(), batch.top_k.data(), batch.top_p.data(),
                            batch.min_p.data(),       batch.seeds.data(), indices.data()};
  std::vector<int32_t> ids(rows.rows);
  nb::gil_scoped_release release;
  sample(kernels, pool, rows, rules, ids.data(), room.get());
  return ids;
}

nb::tuple logprob_rows(ThreadPool& pool, Array<float, 2> logits, Array<int32_t, 1> chosen, size_t num,
                       const std::optional<std::string>& isa, SamplingScratch* scratch) {
  ScratchOrOwn room(scratch, pool);
  const KernelTable& kernels = kernels_or_best(isa);
  const Logits rows = logits_of(logits);
  need_rows("chosen", chosen.shape(0), rows.rows);
  const int32_t* ids = chosen.data();
  if (num > rows.vocab) throw std::invalid_argument("num = " + std::to_string(num) + ": the vocabulary has " + std::to_string(rows.vocab));
  for (size_t r = 0; r < rows.rows; ++r) {
    if (ids[r] < 0 || static_cast<size_t>(ids[r]) >= rows.vocab) {
      throw std::invalid_argument("chosen[" + std::to_string(r) + "] = " + std::to_string(ids[r]) + ": it is not in the vocabulary");
    }
  }
  auto top_ids = new_array<int32_t>({rows.rows, num}), ranks = new_array<int32_t>({rows.rows});
  auto top = new_array<float>({rows.rows, num}), of_chosen = new_array<float>({rows.rows});
  {
    nb::gil_scoped_release release;
    logprobs(kernels, pool, rows, ids, num, {top_ids.data(), top.data(), of_chosen.data(), ranks.data()}, room.get());
  }
  return nb::make_tuple(top_ids, top, of_chosen, ranks);
}

}  // namespace

void bind_sampling(nb::module_& m) {
  nb::class_<SamplingScratch>(m, "SamplingScratch")
      .def(
          "__init__",
          [](SamplingScratch* self, const ThreadPool& pool, size_t vocab) {
            new (self) SamplingScratch(pool.num_threads());
            self->reserve(vocab);
          },
          nb::arg("pool"), nb::arg("vocab"));
  nb::class_<BatchRules>(m, "SamplingRules")
      .def(
          "__init__",
          [](BatchRules* self, std::vector<float> temperature, std::vector<int32_t> top_k, std::vector<float> top_p,
             std::vector<float> min_p, std::vector<uint64_t> seeds) {
            BatchRules rules{std::move(temperature), std::move(top_k), std::move(top_p), std::move(min_p), std::move(seeds)};
            rules.check();
            new (self) BatchRules(std::move(rules));
          },
          nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"), nb::arg("min_p"), nb::arg("seeds"));
  m.def("sample", sample_rows, nb::arg("pool"), nb::arg("logits"), nb::arg("rules"), nb::arg("indices"), nb::arg("isa") = nb::none(),
        nb::arg("scratch") = nb::none());
  m.def("logprobs", logprob_rows, nb::arg("pool"), nb::arg("logits"), nb::arg("chosen"), nb::arg("num"), nb::arg("isa") = nb::none(),
        nb::arg("scratch") = nb::none());
}

}  // namespace octavo
