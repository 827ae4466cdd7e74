// Attention over paged K and V: online softmax (Milakov and Gimelshein 2018) over fixed splits of positions.
//
// An item is a panel of query rows (token, head) that share a KV head. Per split of 128 positions, and per block of up to kRows rows:
//   1. scores   rows x 16 positions at once: a tile of K against a broadcast element of each row, element after element
//   2. softmax  the split's largest score, exp, and the sum, by lanes of position % 16
//   3. values   rows x 16 elements at once: an element run of V against a broadcast weight of each row, position after position
//   4. the split joins the row's state, rescaled to the larger maximum
// The scales of 8-bit K multiply the scores, those of V the weights that meet V. Where several blocks of rows meet a split, its codes are
// turned into fp32 once; each multiply-add sees the same numbers either way.
// Every row sees only its own positions in every step, so its bits depend on its position, length and window alone.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// Rows at once, and for so many rows, tiles of K (or runs of V) at once: their sums, and a register or two of K or V for each tile, fit
// into the registers, and are enough to hide the latency of a multiply-add.
#if defined(__AVX512F__)
constexpr size_t kRows = 8;
constexpr size_t tiles_for(size_t rows) {
  return rows <= 4 ? 4 : 2;
}
#else
constexpr size_t kRows = 4;
constexpr size_t tiles_for(size_t rows) {
  return rows == 1 ? 4 : rows == 2 ? 2 : 1;
}
#endif
constexpr size_t kSplitTiles = kSplit / 16;
constexpr size_t kGranule = 8;  // tokens that surely lie in one block

// One item's shape, and where its parts lie in scratch.
struct ItemShape {
  size_t heads;  // query heads of the KV head
  size_t rows;   // tokens * heads
  size_t head_dim;
};
OCTAVO_FN ItemShape shape_of(const AttentionArgs& args, const AttentionItem& item) {
  const size_t heads = args.q_heads / args.kv.num_kv_heads;
  return {heads, item.tokens * heads, args.kv.head_dim};
}

// Positions, counted from a split's start, that a row sees: [begin, end), empty if begin >= end.
struct Span {
  size_t begin, end;
};
OCTAVO_FN Span visible(const AttentionArgs& args, size_t position, size_t split) {
  const size_t start = split * kSplit, seen = position + 1;
  const size_t first = args.window != 0 && seen > args.window ? seen - args.window : 0;
  const size_t end = seen > start ? seen - start : 0;
  return {first > start ? first - start : 0, end < kSplit ? end : kSplit};
}

// Which of the 16 lanes from position i on is the first at or after ``position``; 16: none.
OCTAVO_FN size_t lane_of(size_t position, size_t i) {
  return position <= i ? 0 : position - i < 16 ? position - i : 16;
}

// Positions of a split that some row of the item sees.
OCTAVO_FN Span visible_of(const AttentionArgs& args, const AttentionItem& item, size_t split) {
  return {visible(args, item.position, split).begin, visible(args, item.position + item.tokens - 1, split).end};
}

// Where a split's K and V lie: tiles of 16 tokens, and runs of 8.
template <typename KV>
struct SplitView {
  const typename KV::Element* k[kSplitTiles];
  const typename KV::Element* v[kSplit / kGranule];
};

// What 8-bit K and V of a split's positions, as loaded, are to be multiplied with.
struct SplitScales {
  alignas(64) float k[kSplit];
  alignas(64) float v[kSplit];
};

// Joins two K tiles of 8 tokens to one of 16. A tile that nobody sees is null, and becomes 0.
template <typename KV>
OCTAVO_FN void join_tiles(const typename KV::Element* const* tiles, size_t head_dim, typename KV::Element* out) {
  constexpr size_t kRun = kGranule * KV::kPair;
  for (size_t i = 0; i < head_dim / KV::kPair; ++i) {
    for (size_t half = 0; half < 2; ++half) {
      void* to = out + (2 * i + half) * kRun;
      if (tiles[half] != nullptr)
        __builtin_memcpy(to, tiles[half] + i * kRun, kRun * sizeof *out);
      else
        __builtin_memset(to, 0, kRun * sizeof *out);
    }
  }
}

// Finds positions [span.begin, span.end) of the split; joined holds kSplit * head_dim numbers, for blocks of 8 tokens. No entry of the
// block table is read but those of these positions.
template <typename KV>
OCTAVO_FN void find_split(const KVLayerView& kv, const AttentionItem& item, size_t split, Span span, typename KV::Element* joined,
                          SplitView<KV>& view) {
  using Element = typename KV::Element;
  const size_t size = kv.block_size, first = span.begin / kGranule;
  const Element* tiles[kSplit / kGranule] = {};
  size_t block = (split * kSplit + first * kGranule) / size, within = (split * kSplit + first * kGranule) % size;
  for (size_t g = first; g * kGranule < span.end; ++g) {
    const size_t number = static_cast<size_t>(item.blocks[block]) * kv.block_stride + (item.kv_head * size + within) * kv.head_dim;
    view.v[g] = static_cast<const Element*>(kv.v) + number;
    tiles[g] = static_cast<const Element*>(kv.k) + number;
    if (g % 2 == 0)
      view.k[g / 2] = tiles[g];
    else if (g == first)  // in mid-tile
      view.k[g / 2] = tiles[g] - kGranule * kv.head_dim;
    within += kGranule;
    if (within == size) {
      within = 0;
      ++block;
    }
  }
  if (size >= 16) return;
  for (size_t t = span.begin / 16; t * 16 < span.end; ++t) {
    view.k[t] = joined + t * 16 * kv.head_dim;
    join_tiles<KV>(tiles + 2 * t, kv.head_dim, joined + t * 16 * kv.head_dim);
  }
}

// Of the positions that find_split found; of others, numbers that nobody looks at.
template <typename KV>
OCTAVO_FN void find_scales(const KVLayerView& kv, const AttentionItem& item, size_t split, Span span, SplitScales& scales) {
  const float k_scale = kv.k_scale * KV::kUnit, v_scale = kv.v_scale * KV::kUnit;
  for (size_t i = 0; i < kSplit; i += 16) {
    f32_store(scales.k + i, f32_set1(k_scale));
    f32_store(scales.v + i, f32_set1(v_scale));
  }
  if (kv.scales == KVScales::kStatic) return;
  for (size_t g = span.begin / kGranule; g * kGranule < span.end; ++g) {
    const size_t position = split * kSplit + g * kGranule, block = static_cast<size_t>(item.blocks[position / kv.block_size]);
    const size_t own = kv_own_index(kv, block, item.kv_head, position % kv.block_size);
    f32_store_partial(scales.k + g * kGranule, bf16_load_partial(kv.k_own + own, kGranule) * f32_set1(k_scale), kGranule);
    f32_store_partial(scales.v + g * kGranule, bf16_load_partial(kv.v_own + own, kGranule) * f32_set1(v_scale), kGranule);
  }
}

// The same positions' numbers as fp32: kSplit * head_dim of K, then of V, into out.
template <typename KV>
OCTAVO_FN void widen_split(const SplitView<KV>& view, Span span, size_t head_dim, float* out, SplitView<KVFP32>& wide) {
  const auto widen = [&](const typename KV::Element* from, size_t count, float* to) __attribute__((always_inline)) {
    for (size_t i = 0; i < count; i += 16) {
      F32 numbers[KV::kPair];
      KV::load(from + i, numbers);
      f32_store(to + i, numbers[0]);
    }
    return to;
  };
  for (size_t t = span.begin / 16; t * 16 < span.end; ++t) wide.k[t] = widen(view.k[t], 16 * head_dim, out + t * 16 * head_dim);
  float* values = out + kSplit * head_dim;
  for (size_t g = span.begin / kGranule; g * kGranule < span.end; ++g)
    wide.v[g] = widen(view.v[g], kGranule * head_dim, values + g * kGranule * head_dim);
}

// scores[r, 16 t + lane] = sum over e, in order, of q[e, r] * k[t][e, lane], for R rows and T tiles.
template <typename KV, size_t R, size_t T>
OCTAVO_FN void score_tiles(const float* q, const typename KV::Element* const* k, size_t head_dim, float* scores) {
  F32 sums[R][T];
  for (size_t r = 0; r < R; ++r) {
    for (size_t t = 0; t < T; ++t) sums[r][t] = f32_zero();
  }
  for (size_t e = 0; e < head_dim; e += KV::kPair) {
    F32 keys[T][KV::kPair];
    for (size_t t = 0; t < T; ++t) KV::load(k[t] + e * 16, keys[t]);
    for (size_t i = 0; i < KV::kPair; ++i) {
      for (size_t r = 0; r < R; ++r) {
        const F32 element = f32_set1(q[(e + i) * R + r]);
        for (size_t t = 0; t < T; ++t) sums[r][t] = f32_fma(element, keys[t][i], sums[r][t]);
      }
    }
  }
  for (size_t r = 0; r < R; ++r) {
    for (size_t t = 0; t < T; ++t) f32_store(scores + r * kSplit + t * 16, sums[r][t]);
  }
}

// Asks memory for V of tiles [t, t + T), and for K of as many tiles after them. Blocks lie anywhere, so that hardware cannot foresee
// the next one; with this a long context is read half as fast again.
template <typename KV, size_t T>
OCTAVO_FN void fetch_ahead(const SplitView<KV>& view, size_t t, Span span, size_t head_dim) {
  const auto fetch = [](const typename KV::Element* p, size_t numbers) __attribute__((always_inline)) {
    for (size_t i = 0; i < numbers; i += 64 / sizeof *p) prefetch(p + i);
  };
  for (size_t g = 2 * t; g < 2 * (t + T) && g * kGranule < span.end; ++g) {
    if (g * kGranule + kGranule > span.begin) fetch(view.v[g], kGranule * head_dim);
  }
  for (size_t next = t + T; next < t + 2 * T && next * 16 < span.end; ++next) fetch(view.k[next], 16 * head_dim);
}

// ``cold``: nobody has read the split yet.
template <typename KV, size_t R>
OCTAVO_FN void score_rows(const float* q, const SplitView<KV>& view, Span span, size_t head_dim, bool cold, float* scores) {
  constexpr size_t kTiles = tiles_for(R);
  const size_t end = (span.end + 15) / 16;
  size_t t = span.begin / 16;
  for (; t + kTiles <= end; t += kTiles) {
    if (cold) fetch_ahead<KV, kTiles>(view, t, span, head_dim);
    score_tiles<KV, R, kTiles>(q, view.k + t, head_dim, scores + t * 16);
  }
  for (; t < end; ++t) {
    if (cold) fetch_ahead<KV, 1>(view, t, span, head_dim);
    score_tiles<KV, R, 1>(q, view.k + t, head_dim, scores + t * 16);
  }
}

// One row's scores in tiles [begin, end), multiples of 16: times K's scales if any, capped if asked, -infinity outside span. Returns the
// largest.
OCTAVO_FN float limit_scores(float* scores, Span span, size_t begin, size_t end, float softcap, const SplitScales* scales) {
  const bool plain = scales == nullptr && softcap == 0.0f;
  F32 largest = f32_set1(-kInfinity);
  for (size_t i = begin; i < end; i += 16) {
    F32 x = f32_load(scores + i);
    const bool inside = i >= span.begin && i + 16 <= span.end;
    if (!(plain && inside)) {
      if (scales != nullptr) x = x * f32_load(scales->k + i);
      if (softcap > 0.0f) x = f32_set1(softcap) * f32_tanh(x / f32_set1(softcap));
      if (!inside) x = f32_keep(x, lane_of(span.begin, i), lane_of(span.end, i), f32_set1(-kInfinity));
      f32_store(scores + i, x);
    }
    largest = f32_max(largest, x);
  }
  return f32_reduce_max(largest);
}

// Turns one row's scores within span into weights exp(score - largest); those outside, in their tiles, become 0. Scales, if any, multiply
// what comes and what goes. Returns the largest score and the sum of weights.
OCTAVO_FN void softmax_row(float* scores, Span span, float softcap, const SplitScales* scales, float& largest, float& sum) {
  const size_t begin = span.begin / 16 * 16;
  largest = limit_scores(scores, span, begin, (span.end + 15) / 16 * 16, softcap, scales);
  F32 sums = f32_zero();
  for (size_t i = begin; i < span.end; i += 16) {
    const F32 weight = f32_exp(f32_load(scores + i) - f32_set1(largest));
    f32_store(scores + i, scales == nullptr ? weight : weight * f32_load(scales->v + i));
    sums = sums + weight;
  }
  sum = f32_reduce_add(sums);
}

// out[r, e] += sum over span's positions p, in order, of weights[r, p] * v[p, e], for R rows and N runs of 16 elements from e = 0 on.
template <typename KV, size_t R, size_t N>
OCTAVO_FN void add_values(const float* weights, const typename KV::Element* const* v, size_t offset, Span span, size_t head_dim,
                          float* out) {
  F32 sums[R][N];
  for (size_t r = 0; r < R; ++r) {
    for (size_t n = 0; n < N; ++n) sums[r][n] = f32_load(out + r * head_dim + n * 16);
  }
  for (size_t p = span.begin / KV::kPair * KV::kPair; p < span.end; p += KV::kPair) {
    const typename KV::Element* run = v[p / kGranule] + p % kGranule * head_dim + offset * KV::kPair;
    F32 values[N][KV::kPair];
    for (size_t n = 0; n < N; ++n) KV::load(run + n * 16 * KV::kPair, values[n]);
    for (size_t i = 0; i < KV::kPair; ++i) {
      if (p + i < span.begin || p + i >= span.end) continue;
      for (size_t r = 0; r < R; ++r) {
        const F32 weight = f32_set1(weights[r * kSplit + p + i]);
        for (size_t n = 0; n < N; ++n) sums[r][n] = f32_fma(weight, values[n][i], sums[r][n]);
      }
    }
  }
  for (size_t r = 0; r < R; ++r) {
    for (size_t n = 0; n < N; ++n) f32_store(out + r * head_dim + n * 16, sums[r][n]);
  }
}

template <typename KV, size_t R>
OCTAVO_FN void add_rows(const float* weights, const SplitView<KV>& view, Span span, size_t head_dim, float* out) {
  constexpr size_t kRuns = tiles_for(R);
  size_t e = 0;
  for (; e + kRuns * 16 <= head_dim; e += kRuns * 16) add_values<KV, R, kRuns>(weights, view.v, e, span, head_dim, out + e);
  for (; e < head_dim; e += 16) add_values<KV, R, 1>(weights, view.v, e, span, head_dim, out + e);
}

// The rows' weighted sums of V, into out [R, head_dim]. Positions that all rows see go together; those before and after, row by row.
template <typename KV, size_t R>
OCTAVO_FN void value_rows(const float* weights, const SplitView<KV>& view, const Span* spans, size_t head_dim, float* out) {
  Span common = spans[0];
  for (size_t r = 1; r < R; ++r) {
    common.begin = common.begin > spans[r].begin ? common.begin : spans[r].begin;
    common.end = common.end < spans[r].end ? common.end : spans[r].end;
  }
  __builtin_memset(out, 0, R * head_dim * sizeof *out);
  const bool together = common.begin < common.end;
  for (size_t r = 0; r < R; ++r) {
    const Span before{spans[r].begin, together ? common.begin : spans[r].end};
    if (before.begin < before.end) add_rows<KV, 1>(weights + r * kSplit, view, before, head_dim, out + r * head_dim);
  }
  if (!together) return;
  add_rows<KV, R>(weights, view, common, head_dim, out);
  for (size_t r = 0; r < R; ++r) {
    const Span after{common.end, spans[r].end};
    if (after.begin < after.end) add_rows<KV, 1>(weights + r * kSplit, view, after, head_dim, out + r * head_dim);
  }
}

// A state's parts (signatures.hpp), from one row on.
struct State {
  float* largest;
  float* sum;
  float* values;
};
OCTAVO_FN State state_at(float* state, ItemShape shape, size_t row) {
  return {state + row, state + shape.rows + row, state + 2 * shape.rows + row * shape.head_dim};
}

// What joins up to 16 rows of a split, or of a run of splits, to those before it: the rows' largest scores and sums, then what either
// side's values are to be multiplied with. A sum of 0: nothing seen.
struct Join {
  alignas(64) float largest[16], sum[16];
  alignas(64) float keep[16], add[16];
};

// Joins the sums of n rows, n <= 16; values are up to the caller.
OCTAVO_FN void join_sums(State to, Join& join, size_t n) {
  const F32 never = f32_set1(-kInfinity), one = f32_set1(1.0f), zero = f32_zero();
  const F32 sum = f32_load_partial(to.sum, n), later_sum = f32_load_partial(join.sum, n), seen = f32_set1(0.5f);  // sums are 1 at least
  const F32 largest = f32_select_less(sum, seen, never, f32_load_partial(to.largest, n));
  const F32 later = f32_select_less(later_sum, seen, never, f32_load_partial(join.largest, n));
  const F32 smaller = f32_exp(zero - f32_abs(later - largest));  // NaN if neither has seen anything
  const F32 keep = f32_select_less(largest, later, smaller, one);
  const F32 add = f32_select_less(later_sum, seen, zero, f32_select_less(largest, later, one, smaller));
  f32_store(join.keep, keep);
  f32_store(join.add, add);
  f32_store_partial(to.sum, f32_fma(sum, keep, later_sum * add), n);
  f32_store_partial(to.largest, f32_max(largest, later), n);
}

// values * keep + later * add of one row.
OCTAVO_FN void join_values(float* values, float keep, const float* later, float add, size_t head_dim) {
  for (size_t e = 0; e < head_dim; e += 16) {
    f32_store(values + e, f32_fma(f32_load(values + e), f32_set1(keep), f32_load(later + e) * f32_set1(add)));
  }
}

// Joins n rows, n <= 16; later is [n, head_dim].
OCTAVO_FN void join_rows(State to, Join& join, const float* later, size_t n, size_t head_dim) {
  join_sums(to, join, n);
  for (size_t r = 0; r < n; ++r) {
    if (join.sum[r] == 0.0f) continue;
    join_values(to.values + r * head_dim, join.keep[r], later + r * head_dim, join.add[r], head_dim);
  }
}

// One split for R rows from ``row`` on; q is their panel [head_dim, R].
template <typename KV, size_t R>
void attend_rows(const AttentionArgs& args, const AttentionItem& item, ItemShape shape, size_t row, size_t split, const SplitView<KV>& view,
                 const SplitScales* scales, bool cold, const float* q, float* state, float* scratch) {
  float* scores = scratch;
  float* values = scratch + R * kSplit;
  Span spans[R], all{kSplit, 0};
  for (size_t r = 0; r < R; ++r) {
    spans[r] = visible(args, item.position + (row + r) / shape.heads, split);
    if (spans[r].begin >= spans[r].end) continue;
    all = {spans[r].begin < all.begin ? spans[r].begin : all.begin, spans[r].end > all.end ? spans[r].end : all.end};
  }
  if (all.begin >= all.end) return;
  score_rows<KV, R>(q, view, all, shape.head_dim, cold, scores);
  Join join{};
  for (size_t r = 0; r < R; ++r) {
    if (spans[r].begin < spans[r].end) softmax_row(scores + r * kSplit, spans[r], args.softcap, scales, join.largest[r], join.sum[r]);
  }
  value_rows<KV, R>(scores, view, spans, shape.head_dim, values);
  join_rows(state_at(state, shape, row), join, values, R, shape.head_dim);
}

// The item's queries times scale, in panels [head_dim, up to kRows rows].
OCTAVO_FN void pack_queries(const AttentionArgs& args, const AttentionItem& item, ItemShape shape, float* out) {
  for (size_t row = 0; row < shape.rows; row += kRows) {
    const size_t count = shape.rows - row < kRows ? shape.rows - row : kRows;
    for (size_t r = 0; r < count; ++r) {
      const size_t token = (row + r) / shape.heads, head = item.kv_head * shape.heads + (row + r) % shape.heads;
      const float* q = f32_row(args.q, item.row + token) + head * shape.head_dim;
      for (size_t e = 0; e < shape.head_dim; ++e) out[row * shape.head_dim + e * count + r] = q[e] * args.scale;
    }
  }
}

OCTAVO_FN bool is_scaled(KVType type) {
  return with_type(type, [](auto kv) { return decltype(kv)::kScaled; });
}

// scratch: [rows, head_dim] queries, [kRows, kSplit + head_dim] scores and values, [kSplit, head_dim] joined K, and of 8-bit types
// [2, kSplit, head_dim] widened K and V.
size_t scratch_floats_fp32(const AttentionArgs& args) {
  const size_t heads = args.q_heads / args.kv.num_kv_heads, dim = args.kv.head_dim;
  return (heads > kItemRows ? heads : kItemRows) * dim + kRows * (kSplit + dim) + (is_scaled(args.kv.type) ? 3 : 1) * kSplit * dim;
}

// One split for all of the item's rows.
template <typename KV>
OCTAVO_FN void attend_split(const AttentionArgs& args, const AttentionItem& item, ItemShape shape, size_t split, const SplitView<KV>& view,
                            const SplitScales* scales, bool cold, const float* queries, float* state, float* work) {
  for (size_t row = 0; row < shape.rows; row += kRows) {
    with_count<kRows>(shape.rows - row < kRows ? shape.rows - row : kRows, [&](auto count) {
      attend_rows<KV, decltype(count)::value>(args, item, shape, row, split, view, scales, cold && row == 0, queries + row * shape.head_dim,
                                              state, work);
    });
  }
}

template <typename KV>
void attend_as(const AttentionArgs& args, const AttentionItem& item, size_t begin, size_t end, float* state, size_t step, float* scratch) {
  const ItemShape shape = shape_of(args, item);
  float* queries = scratch;
  float* work = queries + shape.rows * shape.head_dim;
  float* joined = work + kRows * (kSplit + shape.head_dim);
  pack_queries(args, item, shape, queries);
  for (size_t split = begin; split < end; ++split, state += step) {
    const Span span = visible_of(args, item, split);
    SplitView<KV> view;
    find_split<KV>(args.kv, item, split, span, reinterpret_cast<typename KV::Element*>(joined), view);
    if constexpr (KV::kScaled) {
      SplitScales scales;
      find_scales<KV>(args.kv, item, split, span, scales);
      if (shape.rows > kRows) {
        SplitView<KVFP32> wide;
        widen_split<KV>(view, span, shape.head_dim, joined + kSplit * shape.head_dim, wide);
        attend_split<KVFP32>(args, item, shape, split, wide, &scales, false, queries, state, work);
      } else {
        attend_split<KV>(args, item, shape, split, view, &scales, true, queries, state, work);
      }
    } else {
      attend_split<KV>(args, item, shape, split, view, nullptr, true, queries, state, work);
    }
  }
}

void attend_bf16(const AttentionArgs& args, const AttentionItem& item, size_t begin, size_t end, float* state, size_t step, float* scratch);
size_t scratch_floats_bf16(const AttentionArgs& args);

void attend(const AttentionArgs& args, const AttentionItem& item, size_t begin, size_t end, float* state, size_t step, float* scratch) {
  if (args.kv.bf16_products) return attend_bf16(args, item, begin, end, state, step, scratch);
  with_type(args.kv.type, [&](auto kv) { attend_as<decltype(kv)>(args, item, begin, end, state, step, scratch); });
}

size_t scratch_floats(const AttentionArgs& args) {
  return args.kv.bf16_products ? scratch_floats_bf16(args) : scratch_floats_fp32(args);
}

// Divides a row by its sum, to which the head's sink, if any, adds itself.
OCTAVO_FN void normalize_row(State row, size_t head_dim, const float* sink) {
  float scale = 1.0f, sum = *row.sum;
  if (sink != nullptr) {
    const float top = *sink > *row.largest ? *sink : *row.largest;
    scale = exp_scalar(*row.largest - top);
    sum = sum * scale + exp_scalar(*sink - top);
  }
  const F32 factor = f32_set1(scale / sum);
  for (size_t e = 0; e < head_dim; e += 16) f32_store(row.values + e, f32_load(row.values + e) * factor);
}

// An item's values [tokens, width] into columns from ``column`` on of its rows of out; both are multiples of 32 unless out is fp32.
OCTAVO_FN void store_values(const Rows& out, const AttentionItem& item, size_t column, const float* values, size_t width) {
  if (out.kind == BufferKind::kQ8) {  // groups of all tokens as one run, as a head alone has only a few
    const size_t groups = width / kQ8Group;
    size_t row = item.row, group = 0;
    return quantize_run(
        item.tokens * groups, [&](size_t k, size_t h) __attribute__((always_inline)) { return f32_load(values + 32 * k + 16 * h); },
        [&](size_t) __attribute__((always_inline)) {
          const Q8Place place = q8_place(out, row, column / kQ8Group + group);
          if (++group == groups) ++row, group = 0;
          return place;
        });
  }
  for (size_t token = 0; token < item.tokens; ++token, values += width) {
    if (out.kind == BufferKind::kF32)
      __builtin_memcpy(f32_row(out, item.row + token) + column, values, width * sizeof(float));
    else
      for (size_t i = 0; i < width; i += 32)
        store_floats(out, item.row + token, column + i, f32_load(values + i), f32_load(values + i + 16));
  }
}

void finish(const AttentionArgs& args, const AttentionItem& item, float* states, size_t count) {
  const ItemShape shape = shape_of(args, item);
  const size_t state_floats = attention_state_floats(shape.rows, shape.head_dim);
  for (size_t i = 1; i < count; ++i) {
    for (size_t row = 0; row < shape.rows; row += 16) {
      const size_t n = shape.rows - row < 16 ? shape.rows - row : 16;
      const State later = state_at(states + i * state_floats, shape, row);
      Join join;
      f32_store(join.largest, f32_load_partial(later.largest, n));
      f32_store(join.sum, f32_load_partial(later.sum, n));
      join_rows(state_at(states, shape, row), join, later.values, n, shape.head_dim);
    }
  }
  for (size_t row = 0; row < shape.rows; ++row) {
    normalize_row(state_at(states, shape, row), shape.head_dim,
                  args.sinks == nullptr ? nullptr : args.sinks + item.kv_head * shape.heads + row % shape.heads);
  }
  const size_t width = shape.heads * shape.head_dim;
  store_values(args.out, item, item.kv_head * width, states + 2 * shape.rows, width);
}

constexpr AttentionKernels attention_kernels() {
  return {.attend = attend, .finish = finish, .scratch_floats = scratch_floats};
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
