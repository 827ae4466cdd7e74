// Attention with products of bf16 pairs, summed in fp32: q times its scale and the weights exp(score - largest) are rounded to bf16, two
// products go into a sum at once (dot_bf16). K and V of bf16 lie in such pairs (kv_storage.hpp); codes of 8 bits, which bf16 holds exactly,
// are paired once a split, and their scales multiply scores and weights in fp32. The rest is as in attention.hpp, whose item, splits and
// states these are.
//
// All rows of a block meet the same positions: those that a row does not see have weight 0, which leaves a sum as it is. So that a
// number in a slot nobody wrote cannot spoil it (0 * infinity), the slot behind the last position seen, if it shares a pair, counts as 0.
#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

// Rows at once, and for so many, tiles of K (or runs of V) at once. Many rows make much of what is loaded, and 12 sums or more at a time
// hide the latency of a product.
#if defined(__AVX512F__)
constexpr size_t kRowsBF16 = 8;
constexpr size_t tiles_bf16(size_t rows) {
  return rows <= 6 ? 4 : 2;
}
#else
constexpr size_t kRowsBF16 = kRows;
constexpr size_t tiles_bf16(size_t rows) {
  return tiles_for(rows);
}
#endif

// From one row of queries to the next: each row's address is one register's and a constant then, and rows lie in different sets of L1.
constexpr size_t kQueryStride = kMaxHeadDim + 32;

// scores[r, 16 t + lane] = sum over pairs of e, in order, of q[r, e] * k[t][e, lane]. Asks memory for as much of the split after.
template <size_t R, size_t T>
OCTAVO_FN void score_tiles_bf16(const uint16_t* q, const uint16_t* const* k, const uint16_t* const* next, size_t head_dim, float* scores) {
  F32 sums[R][T];
  for (size_t r = 0; r < R; ++r) {
    for (size_t t = 0; t < T; ++t) sums[r][t] = f32_zero();
  }
  for (size_t i = 0; i < head_dim / 2; ++i) {
    Pairs keys[T];
    for (size_t t = 0; t < T; ++t) {
      keys[t] = pairs_load(k[t] + i * 32);
      prefetch(next[t] + i * 32);
    }
    for (size_t r = 0; r < R; ++r) {
      const Pairs pair = pairs_broadcast(q + r * kQueryStride + 2 * i);
      for (size_t t = 0; t < T; ++t) sums[r][t] = dot_bf16(sums[r][t], keys[t], pair);
    }
  }
  for (size_t r = 0; r < R; ++r) {
    for (size_t t = 0; t < T; ++t) f32_store(scores + r * kSplit + t * 16, sums[r][t]);
  }
}

template <size_t R>
OCTAVO_FN void score_rows_bf16(const uint16_t* q, const SplitView<KVBF16>& view, const SplitView<KVBF16>& next, Span span, size_t head_dim,
                               float* scores) {
  constexpr size_t kTiles = tiles_bf16(R);
  const size_t end = (span.end + 15) / 16;
  size_t t = span.begin / 16;
  for (; t + kTiles <= end; t += kTiles) score_tiles_bf16<R, kTiles>(q, view.k + t, next.k + t, head_dim, scores + t * 16);
  for (; t < end; ++t) score_tiles_bf16<R, 1>(q, view.k + t, next.k + t, head_dim, scores + t * 16);
}

// One row's scores within span as weights exp(score - largest) in bf16; the others of ``all`` become 0. Scales, if any, multiply what comes
// and what goes. The sum is of the weights as rounded, or of those before their scale.
void softmax_row_bf16(float* scores, Span span, Span all, float softcap, const SplitScales* scales, uint16_t* weights, float& largest,
                      float& sum) {
  const bool any = span.begin < span.end;
  const size_t begin = (any ? span.begin : all.begin) / 32 * 32, end = any ? (span.end + 31) / 32 * 32 : begin;
  largest = limit_scores(scores, span, begin, end, softcap, scales);
  uint16_t ones[2] = {0x3f80, 0x3f80};
  asm("" : "+m"(ones));  // read from memory: GCC 12 would write a constant of bf16 as Arm's instruction for one of fp16
  const F32 log2_e = f32_set1(1.44269504f), top = f32_set1(largest);
  const Pairs one = pairs_broadcast(ones), none = pairs_round(f32_zero(), f32_zero());
  F32 sums = f32_zero();
  for (size_t i = all.begin / 32 * 32; i < begin; i += 32) pairs_store(weights + i, none);
  for (size_t i = begin; i < end; i += 32) {
    F32 low = f32_exp2_rough((f32_load(scores + i) - top) * log2_e);
    F32 high = f32_exp2_rough((f32_load(scores + i + 16) - top) * log2_e);
    if (scales != nullptr) {  // a slot that is not seen may have any scale
      sums = sums + low + high;
      low = f32_keep(low * f32_load(scales->v + i), lane_of(span.begin, i), lane_of(span.end, i), f32_zero());
      high = f32_keep(high * f32_load(scales->v + i + 16), lane_of(span.begin, i + 16), lane_of(span.end, i + 16), f32_zero());
    }
    const Pairs rounded = pairs_round(low, high);
    if (scales == nullptr) sums = dot_bf16(sums, rounded, one);
    pairs_store(weights + i, rounded);
  }
  for (size_t i = end; i < all.end; i += 32) pairs_store(weights + i, none);
  sum = f32_reduce_add(sums);
}

// Joins to values [R, head_dim], for N runs of 16 elements, the sum over pairs of positions p in span, in order, of weights[r, p] * v[p,
// e].
template <size_t R, size_t N>
OCTAVO_FN void add_values_bf16(const uint16_t* weights, const uint16_t* const* v, const uint16_t* const* next, size_t offset, Span span,
                               size_t head_dim, const Join& join, float* values) {
  F32 sums[R][N];
  for (size_t r = 0; r < R; ++r) {
    for (size_t n = 0; n < N; ++n) sums[r][n] = f32_zero();
  }
  for (size_t p = span.begin / 2 * 2; p < span.end; p += 2) {
    const size_t place = p % kGranule * head_dim + offset * 2;
    const uint16_t* run = v[p / kGranule] + place;
    const uint16_t* ahead = next[p / kGranule] + place;
    Pairs numbers[N];
    for (size_t n = 0; n < N; ++n) {
      numbers[n] = pairs_load(run + n * 32);
      prefetch(ahead + n * 32);
    }
    for (size_t r = 0; r < R; ++r) {
      const Pairs pair = pairs_broadcast(weights + r * kSplit + p);
      for (size_t n = 0; n < N; ++n) sums[r][n] = dot_bf16(sums[r][n], numbers[n], pair);
    }
  }
  for (size_t r = 0; r < R; ++r) {
    if (join.sum[r] == 0.0f) continue;
    for (size_t n = 0; n < N; ++n) {
      float* to = values + r * head_dim + offset + n * 16;
      f32_store(to, f32_fma(f32_load(to), f32_set1(join.keep[r]), sums[r][n] * f32_set1(join.add[r])));
    }
  }
}

template <size_t R>
OCTAVO_FN void value_rows_bf16(const uint16_t* weights, const SplitView<KVBF16>& view, const SplitView<KVBF16>& next, Span span,
                               size_t head_dim, const Join& join, float* values) {
  constexpr size_t kRuns = tiles_bf16(R);
  size_t e = 0;
  for (; e + kRuns * 16 <= head_dim; e += kRuns * 16) add_values_bf16<R, kRuns>(weights, view.v, next.v, e, span, head_dim, join, values);
  for (; e < head_dim; e += 16) add_values_bf16<R, 1>(weights, view.v, next.v, e, span, head_dim, join, values);
}

// One split for R rows from ``row`` on; scores and weights have room for [R, kSplit].
template <size_t R>
void attend_rows_bf16(const AttentionArgs& args, const AttentionItem& item, ItemShape shape, size_t row, size_t split,
                      const SplitView<KVBF16>& view, const SplitView<KVBF16>& next, const SplitScales* scales, const uint16_t* q,
                      float* state, float* scores, uint16_t* weights) {
  Span spans[R], all{kSplit, 0};
  for (size_t r = 0; r < R; ++r) {
    spans[r] = visible(args, item.position + (row + r) / shape.heads, split);
    if (spans[r].begin >= spans[r].end) spans[r] = {0, 0};
    if (spans[r].end == 0) continue;
    all = {spans[r].begin < all.begin ? spans[r].begin : all.begin, spans[r].end > all.end ? spans[r].end : all.end};
  }
  if (all.begin >= all.end) return;
  score_rows_bf16<R>(q, view, next, all, shape.head_dim, scores);
  Join join{};
  for (size_t r = 0; r < R; ++r) {
    softmax_row_bf16(scores + r * kSplit, spans[r], all, args.softcap, scales, weights + r * kSplit, join.largest[r], join.sum[r]);
  }
  const State rows = state_at(state, shape, row);
  join_sums(rows, join, R);
  value_rows_bf16<R>(weights, view, next, all, shape.head_dim, join, rows.values);
}

// The item's queries times scale as bf16.
OCTAVO_FN void round_queries(const AttentionArgs& args, const AttentionItem& item, ItemShape shape, uint16_t* out) {
  for (size_t token = 0; token < item.tokens; ++token) {
    const float* q = f32_row(args.q, item.row + token) + item.kv_head * shape.heads * shape.head_dim;
    for (size_t head = 0; head < shape.heads; ++head, q += shape.head_dim, out += kQueryStride) {
      for (size_t e = 0; e < shape.head_dim; e += 16) bf16_store(out + e, f32_load(q + e) * f32_set1(args.scale));
    }
  }
}

// V of the granule in which ``end`` lies in mid-pair, with the slot at end 0.
OCTAVO_FN void close_pair(SplitView<KVBF16>& view, size_t end, size_t head_dim, uint16_t* copy) {
  const uint16_t*& run = view.v[end / kGranule];
  __builtin_memcpy(copy, run, kGranule * head_dim * sizeof *copy);
  uint16_t* pair = copy + end % kGranule / 2 * 2 * head_dim;
  for (size_t e = 0; e < head_dim; ++e) pair[2 * e + 1] = 0;
  run = copy;
}

// Two vectors as pairs: a's numbers are the first of each. Both hold what bf16 holds exactly.
OCTAVO_FN void store_pairs(uint16_t* to, F32 a, F32 b) {
  const I32 first = i32_and(i32_sra<16>(bits_of(a)), i32_set1(0xffff));
  const I32 second = i32_and(bits_of(b), i32_set1(static_cast<int32_t>(0xffff0000u)));
  f32_store(reinterpret_cast<float*>(to), f32_of_bits(i32_or(first, second)));
}

// Codes of 8 bits as pairs: kSplit * head_dim of K, then of V, into out. The slot at span.end, if it shares a pair, becomes 0. Asks memory
// for as much of the split after.
template <typename KV>
OCTAVO_FN void pair_split(const SplitView<KV>& view, const SplitView<KV>& next, Span span, size_t head_dim, uint16_t* out,
                          SplitView<KVBF16>& pairs) {
  const auto load = [](const typename KV::Element* p) __attribute__((always_inline)) {
    F32 numbers[KV::kPair];
    KV::load(p, numbers);
    return numbers[0];
  };
  for (size_t t = span.begin / 16; t * 16 < span.end; ++t) {
    uint16_t* tile = out + t * 16 * head_dim;
    pairs.k[t] = tile;
    for (size_t e = 0; e < head_dim; e += 2) {
      if (e % 4 == 0) prefetch(next.k[t] + e * 16);
      store_pairs(tile + e * 16, load(view.k[t] + e * 16), load(view.k[t] + e * 16 + 16));
    }
  }
  for (size_t g = span.begin / kGranule; g * kGranule < span.end; ++g) {
    uint16_t* run = out + (kSplit + g * kGranule) * head_dim;
    pairs.v[g] = run;
    for (size_t i = 0; i < kGranule * head_dim; i += 64) prefetch(next.v[g] + i);
    for (size_t token = 0; token < kGranule && g * kGranule + token < span.end; token += 2) {
      const auto* first = view.v[g] + token * head_dim;
      const bool whole = g * kGranule + token + 1 < span.end;
      for (size_t e = 0; e < head_dim; e += 16)
        store_pairs(run + token * head_dim + 2 * e, load(first + e), whole ? load(first + head_dim + e) : f32_zero());
    }
  }
}

// Asks memory for V of a run's first split, as nobody has asked for it yet: it comes while its K is read.
template <typename KV>
OCTAVO_FN void fetch_values(const SplitView<KV>& view, Span span, size_t head_dim) {
  for (size_t g = span.begin / kGranule; g * kGranule < span.end; ++g) {
    for (size_t i = 0; i < kGranule * head_dim; i += 64 / sizeof(typename KV::Element)) prefetch(view.v[g] + i);
  }
}

// What attend_bf16 keeps in scratch, in this order, as floats.
struct RoomBF16 {
  size_t queries;  // [rows, kQueryStride] bf16
  size_t scores;   // [kRowsBF16, kSplit]
  size_t weights;  // [kRowsBF16, kSplit] bf16
  size_t granule;  // V of 8 tokens, bf16
  size_t pairs;    // K, then V, of a split of 8-bit codes, bf16
  size_t joined;   // K of a split

  size_t all() const { return queries + scores + weights + granule + pairs + joined; }
};
OCTAVO_FN RoomBF16 room_bf16(size_t rows, size_t head_dim, bool scaled) {
  return {rows * kQueryStride / 2,        kRowsBF16 * kSplit,   kRowsBF16 * kSplit / 2, kGranule * head_dim / 2,
          scaled ? kSplit * head_dim : 0, kSplit * head_dim / 2};
}

size_t scratch_floats_bf16(const AttentionArgs& args) {
  const size_t heads = args.q_heads / args.kv.num_kv_heads;
  return room_bf16(heads > kItemRows ? heads : kItemRows, args.kv.head_dim, is_scaled(args.kv.type)).all();
}

template <typename KV>
void attend_bf16_as(const AttentionArgs& args, const AttentionItem& item, size_t begin, size_t end, float* state, size_t step,
                    float* scratch) {
  const ItemShape shape = shape_of(args, item);
  const size_t dim = shape.head_dim;
  const RoomBF16 room = room_bf16(shape.rows, dim, KV::kScaled);
  auto* queries = reinterpret_cast<uint16_t*>(scratch);
  float* scores = scratch + room.queries;
  auto* weights = reinterpret_cast<uint16_t*>(scores + room.scores);
  uint16_t* granule = weights + 2 * room.weights;
  uint16_t* codes = granule + 2 * room.granule;
  auto* joined = reinterpret_cast<typename KV::Element*>(codes + 2 * room.pairs);
  const bool ahead = args.kv.block_size >= 16;  // joined has room for one split
  round_queries(args, item, shape, queries);
  SplitView<KV> views[2];  // of this split and the next, in turn
  for (size_t split = begin; split < end; ++split, state += step) {
    const Span span = visible_of(args, item, split);
    SplitView<KV>&stored = views[split % 2], &next = views[(split + 1) % 2];
    if (split == begin || !ahead) find_split<KV>(args.kv, item, split, span, joined, stored);
    if (split == begin) fetch_values<KV>(stored, span, dim);
    next = stored;
    if (ahead && split + 1 < end) find_split<KV>(args.kv, item, split + 1, visible_of(args, item, split + 1), joined, next);
    SplitView<KVBF16> view;
    const SplitView<KVBF16>* fetched = &view;
    SplitScales scales;
    if constexpr (KV::kScaled) {
      find_scales<KV>(args.kv, item, split, span, scales);
      pair_split<KV>(stored, next, span, dim, codes, view);
    } else {
      view = stored;
      fetched = &next;
      if (span.end % 2 == 1) close_pair(view, span.end, dim, granule);
    }
    for (size_t row = 0; row < shape.rows; row += kRowsBF16) {
      with_count<kRowsBF16>(shape.rows - row < kRowsBF16 ? shape.rows - row : kRowsBF16, [&](auto count) {
        attend_rows_bf16<decltype(count)::value>(args, item, shape, row, split, view, row == 0 ? *fetched : view,
                                                 KV::kScaled ? &scales : nullptr, queries + row * kQueryStride, state, scores, weights);
      });
    }
  }
}

void attend_bf16(const AttentionArgs& args, const AttentionItem& item, size_t begin, size_t end, float* state, size_t step,
                 float* scratch) {
  switch (args.kv.type) {
    case KVType::kE4M3:
      return attend_bf16_as<KVE4M3>(args, item, begin, end, state, step, scratch);
    case KVType::kE5M2:
      return attend_bf16_as<KVE5M2>(args, item, begin, end, state, step, scratch);
    case KVType::kInt8:
      return attend_bf16_as<KVInt8>(args, item, begin, end, state, step, scratch);
    default:
      return attend_bf16_as<KVBF16>(args, item, begin, end, state, step, scratch);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
