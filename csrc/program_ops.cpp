// Ops: what each record must look like, and how its work is split. Operands are listed in docs/native.md.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "program_build.hpp"

namespace octavo {

// ---- OpReader ----

void OpReader::expect(size_t inputs, size_t outputs, size_t weights, size_t ints, size_t floats) const {
  const auto check = [&](const char* name, size_t has, size_t wants) {
    require(has == wants, std::to_string(has) + " " + name + ", not " + std::to_string(wants));
  };
  check("inputs", record.inputs.size(), inputs);
  check("outputs", record.outputs.size(), outputs);
  check("weights", record.weights.size(), weights);
  check("ints", record.ints.size(), ints);
  check("floats", record.floats.size(), floats);
  for (int number : record.inputs) program.buffer(number);
  for (int number : record.outputs) program.buffer(number);
}

namespace {

std::string describe(const Buffer& b) {
  return std::string(kind_name(b.kind)) + " of " + std::to_string(b.columns) + " columns";
}

}  // namespace

void OpReader::input_is(size_t i, BufferKind kind, size_t columns) const {
  const Buffer& b = input(i);
  require(b.kind == kind && (columns == 0 || b.columns == columns), "input " + std::to_string(i) + " is " + describe(b) + ", not " +
                                                                        kind_name(kind) +
                                                                        (columns == 0 ? "" : " of " + std::to_string(columns)));
}

void OpReader::output_is(size_t i, BufferKind kind, size_t columns) const {
  const Buffer& b = output(i);
  require(b.kind == kind && (columns == 0 || b.columns == columns), "output " + std::to_string(i) + " is " + describe(b) + ", not " +
                                                                        kind_name(kind) +
                                                                        (columns == 0 ? "" : " of " + std::to_string(columns)));
}

void OpReader::output_like(size_t i, const Buffer& other) const {
  const Buffer& b = output(i);
  require(b.columns == other.columns && b.rows_of == other.rows_of, "output " + std::to_string(i) + " is " + describe(b) + ", where " +
                                                                        std::to_string(other.columns) +
                                                                        " columns and the input's rows are due");
}

void OpReader::allow_same(std::initializer_list<std::pair<size_t, size_t>> pairs) const {
  for (size_t i = 0; i < record.inputs.size(); ++i)
    for (size_t o = 0; o < record.outputs.size(); ++o)
      if (record.inputs[i] == record.outputs[o] && std::find(pairs.begin(), pairs.end(), std::pair(i, o)) == pairs.end())
        fail("output " + std::to_string(o) + " may not be input " + std::to_string(i));
}

std::shared_ptr<const PackedWeight> OpReader::matrix(size_t i) const {
  const auto* weight = std::get_if<std::shared_ptr<const PackedWeight>>(&record.weights.at(i));
  require(weight != nullptr, "weight " + std::to_string(i) + " is not a matrix");
  require(&(*weight)->kernels() == &program.kernels(), "weight " + std::to_string(i) + " was packed for " + (*weight)->kernels().name);
  return *weight;
}

Vector OpReader::vector(size_t i, size_t length) const {
  const auto* vector = std::get_if<Vector>(&record.weights.at(i));
  require(vector != nullptr, "weight " + std::to_string(i) + " is not a fp32 vector");
  require((*vector)->size() == length,
          "weight " + std::to_string(i) + " has " + std::to_string((*vector)->size()) + " entries, not " + std::to_string(length));
  return *vector;
}

Vector OpReader::optional_vector(size_t i, size_t length) const {
  return std::holds_alternative<std::monostate>(record.weights.at(i)) ? nullptr : vector(i, length);
}

std::vector<double> OpReader::wide_vector(size_t i) const {
  if (const auto* wide = std::get_if<WideVector>(&record.weights.at(i))) return **wide;
  const auto* narrow = std::get_if<Vector>(&record.weights.at(i));
  require(narrow != nullptr, "weight " + std::to_string(i) + " is not a vector");
  return {(*narrow)->begin(), (*narrow)->end()};
}

size_t OpReader::integer(size_t i, const char* name, size_t least, size_t most) const {
  const int64_t value = record.ints.at(i);
  require(value >= static_cast<int64_t>(least) && static_cast<uint64_t>(value) <= most,
          std::string(name) + " = " + std::to_string(value) + " is not in " + std::to_string(least) + " … " + std::to_string(most));
  return static_cast<size_t>(value);
}

namespace {

constexpr size_t kMaxHeads = 65536, kMaxLayers = 65536;
constexpr BufferKind kF32 = BufferKind::kF32;

float* data_of(const Vector& vector) {
  return vector ? const_cast<float*>(vector->data()) : nullptr;
}

// ---- elementwise ----

OpBody build_rms_norm(const OpReader& op) {
  op.expect(1, 1, 1, 1, 1);
  op.input_is(0, kF32);
  op.output_like(0, op.input(0));
  op.allow_same({{0, 0}});
  const size_t heads = op.integer(0, "heads", 1, kMaxHeads), columns = op.input(0).columns;
  op.require(columns % heads == 0, std::to_string(columns) + " columns are no multiple of heads = " + std::to_string(heads));
  op.require(op.output(0).kind == kF32 || heads == 1 || columns / heads % kQ8Group == 0,
             "heads of " + std::to_string(columns / heads) + " columns, no multiple of 32, can only be f32");
  const Vector weight = op.vector(0, columns / heads);
  return [x = op.input_number(0), out = op.output_number(0), weight, heads, eps = op.number(0)](StepContext& c) {
    const RmsNormArgs args{c.rows(x), c.rows(out), data_of(weight), heads, eps};
    c.pool.parallel_ranges(c.count(x), least_rows(args.x.columns), [&](size_t b, size_t e) { c.kernels.elementwise.rms_norm(args, b, e); });
  };
}

OpBody build_quantize(const OpReader& op) {
  op.expect(1, 1, 0, 0, 0);
  op.input_is(0, kF32);
  op.output_like(0, op.input(0));
  op.require(op.output(0).kind != kF32, "output 0 is f32, not q8 or bf16");
  return [x = op.input_number(0), out = op.output_number(0)](StepContext& c) {
    const QuantizeArgs args{c.rows(x), c.rows(out)};
    c.pool.parallel_ranges(c.count(x), least_rows(args.x.columns), [&](size_t b, size_t e) { c.kernels.elementwise.quantize(args, b, e); });
  };
}

OpBody build_gated_act(const OpReader& op) {
  op.expect(2, 1, 0, 1, 0);
  op.input_is(0, kF32);
  op.input_is(1, kF32, op.input(0).columns);
  op.require(op.input(0).rows_of == op.input(1).rows_of, "its inputs differ in rows");
  op.output_like(0, op.input(0));
  op.allow_same({{0, 0}, {1, 0}});
  const auto activation = static_cast<Activation>(op.integer(0, "activation", 0, 1));
  return [gate = op.input_number(0), up = op.input_number(1), out = op.output_number(0), activation](StepContext& c) {
    const GatedActArgs args{c.rows(gate), c.rows(up), c.rows(out), activation};
    c.pool.parallel_ranges(c.count(out), least_rows(args.out.columns),
                           [&](size_t b, size_t e) { c.kernels.elementwise.gated_act(args, b, e); });
  };
}

OpBody build_add(const OpReader& op) {
  op.expect(2, 1, 0, 0, 0);
  op.input_is(0, kF32);
  op.input_is(1, kF32, op.input(0).columns);
  op.require(op.input(0).rows_of == op.input(1).rows_of, "its inputs differ in rows");
  op.output_is(0, kF32);
  op.output_like(0, op.input(0));
  return [a = op.input_number(0), b = op.input_number(1), out = op.output_number(0)](StepContext& c) {
    const AddArgs args{c.rows(a), c.rows(b), c.rows(out)};
    c.pool.parallel_ranges(c.count(out), 4 * least_rows(args.out.columns),
                           [&](size_t begin, size_t end) { c.kernels.elementwise.add(args, begin, end); });
  };
}

OpBody build_softcap(const OpReader& op) {
  op.expect(1, 1, 0, 0, 1);
  op.input_is(0, kF32);
  op.output_is(0, kF32);
  op.output_like(0, op.input(0));
  op.require(op.number(0) > 0, "cap = " + std::to_string(op.number(0)) + " is not positive");
  return [x = op.input_number(0), out = op.output_number(0), cap = op.number(0)](StepContext& c) {
    const SoftcapArgs args{c.rows(x), c.rows(out), cap};
    c.pool.parallel_ranges(c.count(x), least_rows(args.x.columns), [&](size_t b, size_t e) { c.kernels.elementwise.softcap(args, b, e); });
  };
}

OpBody build_gather(const OpReader& op) {
  op.expect(1, 1, 0, 0, 0);
  op.input_is(0, kF32);
  op.output_is(0, kF32, op.input(0).columns);
  op.require(op.input(0).rows_of == RowsOf::kTokens && op.output(0).rows_of == RowsOf::kLogits,
             "it goes from tokens' rows to logits' rows");
  return [x = op.input_number(0), out = op.output_number(0)](StepContext& c) {
    const GatherArgs args{c.rows(x), c.rows(out), c.step.logits_rows};
    c.pool.parallel_ranges(c.count(out), 4 * least_rows(args.x.columns),
                           [&](size_t b, size_t e) { c.kernels.elementwise.gather(args, b, e); });
  };
}

// ---- rope and KV ----

void require_tokens(const OpReader& op) {
  for (size_t i = 0; i < op.record.inputs.size(); ++i)
    op.require(op.input(i).rows_of == RowsOf::kTokens, "input " + std::to_string(i) + " has logits' rows, not tokens'");
}

// Reads heads, head_dim and style from `first` on, and the frequencies.
struct RopeShape {
  size_t heads, head_dim, table;
  RopeStyle style;
};

RopeShape read_rope(const OpReader& op, size_t heads, size_t dim_index) {
  const size_t head_dim = op.integer(dim_index, "head_dim", 2, kMaxHeadDim);
  const auto style = static_cast<RopeStyle>(op.integer(dim_index + 1, "style", 0, 1));
  const std::vector<double> inv_freq = op.wide_vector(0);
  op.require(!inv_freq.empty() && 2 * inv_freq.size() <= head_dim,
             std::to_string(inv_freq.size()) + " frequencies do not fit head_dim = " + std::to_string(head_dim));
  return {heads, head_dim, op.program.add_rope(inv_freq, op.record.floats[0]), style};
}

OpBody build_rope(const OpReader& op) {
  op.expect(1, 1, 1, 3, 1);
  require_tokens(op);
  const RopeShape rope = read_rope(op, op.integer(0, "heads", 1, kMaxHeads), 1);
  op.input_is(0, kF32, rope.heads * rope.head_dim);
  op.output_is(0, kF32);
  op.output_like(0, op.input(0));
  return [x = op.input_number(0), out = op.output_number(0), rope](StepContext& c) {
    const RopeArgs args{c.rows(x), c.rows(out), c.program.rope_table(rope.table), rope.heads, rope.head_dim, rope.style};
    c.pool.parallel_ranges(c.count(x), least_rows(args.x.columns), [&](size_t b, size_t e) { c.kernels.rope.rope(args, b, e); });
  };
}

OpBody build_kv_write(const OpReader& op) {
  op.expect(2, 0, 0, 2, 0);
  require_tokens(op);
  op.input_is(0, kF32);
  op.input_is(1, kF32, op.input(0).columns);
  const size_t layer = op.integer(0, "layer", 0, kMaxLayers), group = op.integer(1, "group", 0, kMaxLayers);
  op.program.use_kv({.op = 0, .layer = layer, .group = group, .width = op.input(0).columns, .heads = 0, .window = 0, .attends = false});
  return [k = op.input_number(0), v = op.input_number(1), layer, group](StepContext& c) {
    const KVWriteArgs args{c.rows(k), c.rows(v), c.kv[group]->layer(layer), c.groups[group].slots};
    c.pool.parallel_ranges(c.count(k), least_rows(args.k.columns), [&](size_t b, size_t e) { c.kernels.rope.kv_write(args, b, e); });
  };
}

OpBody build_rope_kv_write(const OpReader& op) {
  op.expect(3, 1, 1, 6, 1);
  require_tokens(op);
  const RopeShape rope = read_rope(op, op.integer(0, "q_heads", 1, kMaxHeads), 2);
  const size_t kv_heads = op.integer(1, "kv_heads", 1, kMaxHeads);
  const size_t layer = op.integer(4, "layer", 0, kMaxLayers), group = op.integer(5, "group", 0, kMaxLayers);
  op.input_is(0, kF32, rope.heads * rope.head_dim);
  op.input_is(1, kF32, kv_heads * rope.head_dim);
  op.input_is(2, kF32, kv_heads * rope.head_dim);
  op.output_is(0, kF32);
  op.output_like(0, op.input(0));
  op.allow_same({{0, 0}});
  op.program.use_kv(
      {.op = 0, .layer = layer, .group = group, .width = op.input(1).columns, .heads = kv_heads, .window = 0, .attends = false});
  return [q = op.input_number(0), k = op.input_number(1), v = op.input_number(2), out = op.output_number(0), rope, layer,
          group](StepContext& c) {
    const RopeArgs rotate{c.rows(q), c.rows(out), c.program.rope_table(rope.table), rope.heads, rope.head_dim, rope.style};
    const RopeKVWriteArgs args{rotate, {c.rows(k), c.rows(v), c.kv[group]->layer(layer), c.groups[group].slots}};
    c.pool.parallel_ranges(c.count(q), least_rows(rotate.x.columns), [&](size_t b, size_t e) { c.kernels.rope.rope_kv_write(args, b, e); });
  };
}

OpBody build_attention(const OpReader& op) {
  op.expect(1, 1, 1, 5, 2);
  require_tokens(op);
  op.input_is(0, kF32);
  op.output_like(0, op.input(0));
  op.allow_same({});
  const size_t layer = op.integer(0, "layer", 0, kMaxLayers), group = op.integer(1, "group", 0, kMaxLayers);
  const size_t heads = op.integer(2, "q_heads", 1, kMaxHeads), window = op.integer(3, "window", 0, INT32_MAX);
  const bool for_logits = op.integer(4, "for_logits", 0, 1) == 1;
  const Vector sinks = op.optional_vector(0, heads);
  op.require(op.number(1) >= 0, "softcap = " + std::to_string(op.number(1)) + " is negative");
  op.program.use_kv(
      {.op = 0, .layer = layer, .group = group, .width = op.input(0).columns, .heads = heads, .window = window, .attends = true});
  return [q = op.input_number(0), out = op.output_number(0), layer, group, heads, window, sinks, scale = op.number(0),
          softcap = op.number(1), for_logits](StepContext& c) {
    const AttentionArgs args{
        c.rows(q), c.rows(out), c.kv[group]->layer(layer), c.step, c.groups[group], data_of(sinks), heads, window, scale,
        softcap,   for_logits};
    run_attention(c.kernels, c.pool, args, c.program.attention_scratch());
  };
}

}  // namespace

OpBody build_op(Program& program, const OpRecord& record) {
  static const std::unordered_map<std::string, OpBody (*)(const OpReader&)> kBuilders = {
      {"embed", build_embed},         {"rms_norm", build_rms_norm}, {"quantize", build_quantize},
      {"linear", build_linear},       {"rope", build_rope},         {"gated_linear", build_gated_linear},
      {"kv_write", build_kv_write},   {"add", build_add},           {"rope_kv_write", build_rope_kv_write},
      {"attention", build_attention}, {"softcap", build_softcap},   {"gated_act", build_gated_act},
      {"gather", build_gather},
  };
  const auto builder = kBuilders.find(record.kind);
  if (builder == kBuilders.end()) throw std::invalid_argument("op: '" + record.kind + "' is not a kind of op");
  return builder->second(OpReader(program, record));
}

}  // namespace octavo
