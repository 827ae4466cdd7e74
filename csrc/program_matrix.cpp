// Ops over packed weights: embed, linear, gated_linear.
#include <algorithm>

#include "program_build.hpp"

namespace octavo {
namespace {

using Matrix = std::shared_ptr<const PackedWeight>;

// How rows × tiles of a matrix product are cut into work items.
//
// Few rows: the weights are read once, from memory. Long runs of tiles come first, as each new place costs a wait for memory, then short
// ones, so that threads end together. Many rows: a block of rows stays in L2 (int8 codes take 1.7 bytes an input) while the tiles of
// an item pass by, and the tiles of an item stay in L2 while the blocks of rows pass by.
struct Cut {
  size_t rows, row_step, tiles, tile_step;
  size_t long_runs = 0, long_step = 0;  // items of long_step tiles before those of tile_step

  size_t row_blocks() const { return (rows + row_step - 1) / row_step; }
  size_t items() const { return row_blocks() * (long_runs + (tiles - long_runs * long_step + tile_step - 1) / tile_step); }
  size_t first_tile(size_t run) const { return run < long_runs ? run * long_step : long_runs * long_step + (run - long_runs) * tile_step; }
};

constexpr size_t kShortRunBytes = 16 << 10, kLongRunBytes = 256 << 10, kBlockBytes = 192 << 10;

size_t clamp(size_t value, size_t least, size_t most) {
  return std::max(least, std::min(value, most));
}

// Three quarters in long runs, as many to each thread.
Cut cut_for_few_rows(size_t rows, size_t tiles, size_t tile_bytes, size_t threads) {
  Cut cut{rows, std::max<size_t>(rows, 1), tiles, clamp(kShortRunBytes / tile_bytes, 1, tiles)};
  const size_t led = tiles * 3 / 4;
  cut.long_runs = threads * ((led * tile_bytes + threads * kLongRunBytes - 1) / (threads * kLongRunBytes));
  cut.long_step = led / std::max<size_t>(cut.long_runs, 1);
  if (cut.long_step == 0) cut.long_runs = 0;
  return cut;
}

// all_tiles: of the whole op, of which this product may be a part.
Cut cut_product(size_t rows, size_t row_bytes, size_t tiles, size_t all_tiles, size_t tile_bytes, size_t rows_per_pass, size_t threads) {
  if (rows <= rows_per_pass) return cut_for_few_rows(rows, tiles, tile_bytes, threads);
  const size_t passes = clamp(kBlockBytes / (row_bytes * rows_per_pass), 1, 8);
  const size_t row_step = std::min(rows, passes * rows_per_pass);
  const size_t row_blocks = (rows + row_step - 1) / row_step;
  // About eight items a thread, and of even size, so that threads end together.
  const size_t fair = std::max<size_t>(1, all_tiles * row_blocks / (8 * threads));
  const size_t most = clamp(kBlockBytes / tile_bytes, 1, std::min(fair, tiles));
  const size_t tile_blocks = (tiles + most - 1) / most;
  return {rows, row_step, tiles, (tiles + tile_blocks - 1) / tile_blocks};
}

// Runs fn(row_begin, row_end, tile_begin, tile_end) for item `item` of a cut; row blocks follow one another, so that tiles stay in cache.
template <typename Fn>
void run_item(const Cut& cut, size_t item, Fn fn) {
  const size_t r = item % cut.row_blocks() * cut.row_step, run = item / cut.row_blocks();
  fn(r, std::min(r + cut.row_step, cut.rows), cut.first_tile(run), std::min(cut.first_tile(run + 1), cut.tiles));
}

size_t tiles_of(const WeightView& w) {
  return (w.rows + kTile - 1) / kTile;
}

Matrix read_matrix(const OpReader& op, size_t i) {
  const Matrix w = op.matrix(i);
  const Buffer& x = op.input(0);
  op.require(w->view().columns == x.columns, "weight " + std::to_string(i) + " has " + std::to_string(w->view().columns) +
                                                 " columns, its input " + std::to_string(x.columns));
  op.require(w->activation() == x.kind,
             "weight " + std::to_string(i) + " takes " + kind_name(w->activation()) + " inputs, not " + kind_name(x.kind));
  return w;
}

struct LinearPart {
  Matrix weight;
  Vector bias;
  int residual;  // -1: none
  int out;
};

LinearPart read_part(const OpReader& op, size_t i, size_t n, bool has_residual) {
  const LinearPart part{read_matrix(op, i), op.optional_vector(n + i, op.matrix(i)->view().rows),
                        has_residual ? op.input_number(1 + i) : -1, op.output_number(i)};
  op.output_is(i, BufferKind::kF32, part.weight->view().rows);
  op.require(op.output(i).rows_of == op.input(0).rows_of, "output " + std::to_string(i) + " has not the input's rows");
  if (has_residual) {
    op.input_is(1 + i, BufferKind::kF32, part.weight->view().rows);
    op.require(op.input(1 + i).rows_of == op.input(0).rows_of, "residual " + std::to_string(i) + " has not the input's rows");
  }
  return part;
}

struct Product {
  LinearArgs args;
  Cut cut;
  size_t first_item;
};

// products: room for as many as there are parts, kept from step to step.
void run_linear(StepContext& c, int x, const std::vector<LinearPart>& parts, std::vector<Product>& products) {
  const size_t rows = c.count(x), per_pass = c.kernels.linear.rows_per_pass;
  products.clear();
  size_t items = 0, all_tiles = 0;
  for (const LinearPart& part : parts) all_tiles += tiles_of(part.weight->view());
  for (const LinearPart& part : parts) {
    const WeightView& w = part.weight->view();
    const Rows residual = part.residual < 0 ? Rows{nullptr, 0, 0, BufferKind::kF32} : c.rows(part.residual);
    const LinearArgs args{c.rows(x), w, part.bias ? part.bias->data() : nullptr, residual, c.rows(part.out)};
    const Cut cut = cut_product(rows, args.x.stride, tiles_of(w), all_tiles, w.tile_bytes, per_pass, c.pool.num_threads());
    products.push_back({args, cut, items});
    items += products.back().cut.items();
  }
  c.pool.parallel_for(items, [&](size_t item, size_t) {
    size_t p = products.size() - 1;
    while (item < products[p].first_item) --p;
    run_item(products[p].cut, item - products[p].first_item,
             [&](size_t r0, size_t r1, size_t t0, size_t t1) { c.kernels.linear.linear(products[p].args, r0, r1, t0, t1); });
  });
}

}  // namespace

OpBody build_linear(const OpReader& op) {
  op.require(op.record.ints.size() == 2, "its ints are n, has_residual");
  const size_t n = op.integer(0, "n", 1, 64);
  const bool has_residual = op.integer(1, "has_residual", 0, 1) == 1;
  op.expect(has_residual ? 1 + n : 1, n, 2 * n, 2, 0);
  std::vector<LinearPart> parts;
  for (size_t i = 0; i < n; ++i) parts.push_back(read_part(op, i, n, has_residual));
  for (size_t i = 0; i < n; ++i)
    for (size_t other = 0; other < op.record.inputs.size(); ++other)
      op.require(op.output_number(i) != op.input_number(other) || (has_residual && other == 1 + i),
                 "output " + std::to_string(i) + " may not be input " + std::to_string(other));
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j) op.require(op.output_number(i) != op.output_number(j), "two outputs are one buffer");
  return [x = op.input_number(0), parts, products = std::vector<Product>(n)](StepContext& c) mutable { run_linear(c, x, parts, products); };
}

OpBody build_gated_linear(const OpReader& op) {
  op.expect(1, 1, 2, 1, 0);
  const Matrix gate = read_matrix(op, 0), up = read_matrix(op, 1);
  op.require(gate->view().rows == up->view().rows, "gate and up differ in rows");
  op.require(op.output(0).columns == gate->view().rows && op.output(0).rows_of == op.input(0).rows_of,
             "output 0 has not the weights' rows");
  op.allow_same({});
  const auto activation = static_cast<Activation>(op.integer(0, "activation", 0, 1));
  return [x = op.input_number(0), out = op.output_number(0), gate, up, activation](StepContext& c) {
    const GatedLinearArgs args{c.rows(x), gate->view(), up->view(), c.rows(out), activation};
    const size_t groups = (args.gate.rows + 31) / 32, group_bytes = 2 * (args.gate.tile_bytes + args.up.tile_bytes);
    const Cut cut =
        cut_product(c.count(x), args.x.stride, groups, groups, group_bytes, c.kernels.linear.rows_per_pass, c.pool.num_threads());
    c.pool.parallel_for(cut.items(), [&](size_t item, size_t) {
      run_item(cut, item, [&](size_t r0, size_t r1, size_t g0, size_t g1) { c.kernels.linear.gated_linear(args, r0, r1, g0, g1); });
    });
  };
}

OpBody build_embed(const OpReader& op) {
  op.expect(0, 1, 1, 0, 1);
  const Matrix weight = op.matrix(0);
  op.output_is(0, BufferKind::kF32, weight->view().columns);
  op.require(op.output(0).rows_of == RowsOf::kTokens, "output 0 has logits' rows, not tokens'");
  op.program.use_vocab(weight->view().rows);
  return [out = op.output_number(0), weight, scale = op.number(0)](StepContext& c) {
    const EmbedArgs args{weight->view(), c.step.token_ids, c.rows(out), scale};
    c.pool.parallel_ranges(c.count(out), least_rows(args.out.columns), [&](size_t b, size_t e) { c.kernels.linear.embed(args, b, e); });
  };
}

}  // namespace octavo
