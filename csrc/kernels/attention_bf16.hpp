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

// scores[r, 16 t + lane] = sum over pairs of e, in order, of q[e, r] * k[t][e, lane]; q is [head_dim / 2, R, 2].
template <size_t R, size_t T>
OCTAVO_FN void score_tiles_bf16(const uint16_t* q, const uint16_t* const* k, size_t head_dim, float* scores) {
  F32 sums[R][T];
  for (size_t r = 0; r < R; ++r) {
    for (size_t t = 0; t < T; ++t) sums[r][t] = f32_zero();
  }
  for (size_t i = 0; i < head_dim / 2; ++i) {
    Pairs keys[T];
    for (size_t t = 0; t < T; ++t) keys[t] = pairs_load(k[t] + i * 32);
    for (size_t r = 0; r < R; ++r) {
      const Pairs pair = pairs_broadcast(q + (i * R + r) * 2);
      for (size_t t = 0; t < T; ++t) sums[r][t] = dot_bf16(sums[r][t], keys[t], pair);
    }
  }
  for (size_t r = 0; r < R; ++r) {
    for (size_t t = 0; t < T; ++t) f32_store(scores + r * kSplit + t * 16, sums[r][t]);
  }
}

template <size_t R>
OCTAVO_FN void score_rows_bf16(const uint16_t* q, const SplitView<KVBF16>& view, Span span, size_t head_dim, bool cold, float* scores) {
  constexpr size_t kTiles = tiles_for(R);
  const size_t end = (span.end + 15) / 16;
  size_t t = span.begin / 16;
  for (; t + kTiles <= end; t += kTiles) {
    if (cold) fetch_ahead<KVBF16, kTiles>(view, t, span, head_dim);
    score_tiles_bf16<R, kTiles>(q, view.k + t, head_dim, scores + t * 16);
  }
  for (; t < end; ++t) {
    if (cold) fetch_ahead<KVBF16, 1>(view, t, span, head_dim);
    score_tiles_bf16<R, 1>(q, view.k + t, head_dim, scores + t * 16);
  }
}

// One row's scores within span as weights exp(score - largest) in bf16; the others of ``all`` become 0. Scales, if any, multiply what comes
// and what goes. The sum is of the weights as rounded, or of those before their scale.
OCTAVO_FN SoftmaxSums softmax_row_bf16(float* scores, Span span, Span all, float softcap, const SplitScales* scales, uint16_t* weights) {
  const size_t begin = span.begin / 16 * 16;
  F32 largest = f32_set1(-kInfinity);
  for (size_t i = begin; i < span.end; i += 16) {
    F32 x = f32_load(scores + i);
    if (scales != nullptr) x = x * f32_load(scales->k + i);
    if (softcap > 0.0f) x = f32_set1(softcap) * f32_tanh(x / f32_set1(softcap));
    const size_t first = span.begin > i ? span.begin - i : 0, last = span.end - i < 16 ? span.end - i : 16;
    x = f32_keep(x, first, last, f32_set1(-kInfinity));
    f32_store(scores + i, x);
    largest = f32_max(largest, x);
  }
  const float top = f32_reduce_max(largest);
  F32 sums = f32_zero();
  for (size_t i = all.begin / 16 * 16; i < all.end; i += 16) {
    if (i < begin || i >= span.end) {
      bf16_store(weights + i, f32_zero());
      continue;
    }
    const F32 weight = f32_exp(f32_load(scores + i) - f32_set1(top));
    if (scales == nullptr) {
      bf16_store(weights + i, weight);
      sums = sums + bf16_load(weights + i);
    } else {  // a slot that is not seen may have any scale
      const size_t first = span.begin > i ? span.begin - i : 0, last = span.end - i < 16 ? span.end - i : 16;
      bf16_store(weights + i, f32_keep(weight * f32_load(scales->v + i), first, last, f32_zero()));
      sums = sums + weight;
    }
  }
  return {top, f32_reduce_add(sums)};
}

// out[r, e] = sum over pairs of positions p in span, in order, of weights[r, p] * v[p, e], for R rows and N runs of 16 elements.
template <size_t R, size_t N>
OCTAVO_FN void add_values_bf16(const uint16_t* weights, const uint16_t* const* v, size_t offset, Span span, size_t head_dim, float* out) {
  F32 sums[R][N];
  for (size_t r = 0; r < R; ++r) {
    for (size_t n = 0; n < N; ++n) sums[r][n] = f32_zero();
  }
  for (size_t p = span.begin / 2 * 2; p < span.end; p += 2) {
    const uint16_t* run = v[p / kGranule] + p % kGranule * head_dim + offset * 2;
    Pairs values[N];
    for (size_t n = 0; n < N; ++n) values[n] = pairs_load(run + n * 32);
    for (size_t r = 0; r < R; ++r) {
      const Pairs pair = pairs_broadcast(weights + r * kSplit + p);
      for (size_t n = 0; n < N; ++n) sums[r][n] = dot_bf16(sums[r][n], values[n], pair);
    }
  }
  for (size_t r = 0; r < R; ++r) {
    for (size_t n = 0; n < N; ++n) f32_store(out + r * head_dim + n * 16, sums[r][n]);
  }
}

template <size_t R>
OCTAVO_FN void value_rows_bf16(const uint16_t* weights, const SplitView<KVBF16>& view, Span span, size_t head_dim, float* out) {
  constexpr size_t kRuns = tiles_for(R);
  size_t e = 0;
  for (; e + kRuns * 16 <= head_dim; e += kRuns * 16) add_values_bf16<R, kRuns>(weights, view.v, e, span, head_dim, out + e);
  for (; e < head_dim; e += 16) add_values_bf16<R, 1>(weights, view.v, e, span, head_dim, out + e);
}

// One split for R rows from ``row`` on. work: scores [R, kSplit], values [R, head_dim].
template <size_t R>
void attend_rows_bf16(const AttentionArgs& args, const AttentionItem& item, ItemShape shape, size_t row, size_t split,
                      const SplitView<KVBF16>& view, const SplitScales* scales, bool cold, const uint16_t* q, float* state, float* work,
                      uint16_t* weights) {
  float* scores = work;
  float* values = work + R * kSplit;
  Span spans[R], all{kSplit, 0};
  for (size_t r = 0; r < R; ++r) {
    spans[r] = visible(args, item.position + (row + r) / shape.heads, split);
    if (spans[r].begin >= spans[r].end) spans[r] = {0, 0};
    if (spans[r].end == 0) continue;
    all = {spans[r].begin < all.begin ? spans[r].begin : all.begin, spans[r].end > all.end ? spans[r].end : all.end};
  }
  if (all.begin >= all.end) return;
  score_rows_bf16<R>(q, view, all, shape.head_dim, cold, scores);
  SoftmaxSums sums[R];
  for (size_t r = 0; r < R; ++r) {
    sums[r] = softmax_row_bf16(scores + r * kSplit, spans[r], all, args.softcap, scales, weights + r * kSplit);
  }
  value_rows_bf16<R>(weights, view, all, shape.head_dim, values);
  for (size_t r = 0; r < R; ++r) join_row(state_at(state, shape, row + r), sums[r], values + r * shape.head_dim, shape.head_dim);
}

// The item's queries times scale as bf16, in panels [head_dim / 2, up to kRows rows, 2].
OCTAVO_FN void pack_queries_bf16(const AttentionArgs& args, const AttentionItem& item, ItemShape shape, uint16_t* out) {
  uint16_t one[kMaxHeadDim];
  for (size_t row = 0; row < shape.rows; row += kRows) {
    const size_t count = shape.rows - row < kRows ? shape.rows - row : kRows;
    for (size_t r = 0; r < count; ++r) {
      const size_t token = (row + r) / shape.heads, head = item.kv_head * shape.heads + (row + r) % shape.heads;
      const float* q = f32_row(args.q, item.row + token) + head * shape.head_dim;
      for (size_t e = 0; e < shape.head_dim; e += 16) bf16_store(one + e, f32_load(q + e) * f32_set1(args.scale));
      for (size_t i = 0; i < shape.head_dim / 2; ++i) {
        __builtin_memcpy(out + row * shape.head_dim + (i * count + r) * 2, one + 2 * i, 2 * sizeof *one);
      }
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

// Codes of 8 bits as pairs: kSplit * head_dim of K, then of V, into out. The slot at span.end, if it shares a pair, becomes 0.
template <typename KV>
OCTAVO_FN void pair_split(const SplitView<KV>& view, Span span, size_t head_dim, uint16_t* out, SplitView<KVBF16>& pairs) {
  const auto load = [](const typename KV::Element* p) __attribute__((always_inline)) {
    F32 numbers[KV::kPair];
    KV::load(p, numbers);
    return numbers[0];
  };
  for (size_t t = span.begin / 16; t * 16 < span.end; ++t) {
    uint16_t* tile = out + t * 16 * head_dim;
    pairs.k[t] = tile;
    for (size_t e = 0; e < head_dim; e += 2) store_pairs(tile + e * 16, load(view.k[t] + e * 16), load(view.k[t] + e * 16 + 16));
  }
  for (size_t g = span.begin / kGranule; g * kGranule < span.end; ++g) {
    uint16_t* run = out + (kSplit + g * kGranule) * head_dim;
    pairs.v[g] = run;
    for (size_t token = 0; token < kGranule && g * kGranule + token < span.end; token += 2) {
      const auto* first = view.v[g] + token * head_dim;
      const bool whole = g * kGranule + token + 1 < span.end;
      for (size_t e = 0; e < head_dim; e += 16)
        store_pairs(run + token * head_dim + 2 * e, load(first + e), whole ? load(first + head_dim + e) : f32_zero());
    }
  }
}

// scratch: queries [rows, head_dim], scores and values as of attend_rows_bf16, weights [kRows, kSplit], a granule of V, joined K, and of
// 8-bit types their pairs. The bf16 ones have room in what scratch_floats keeps for fp32.
template <typename KV>
void attend_bf16_as(const AttentionArgs& args, const AttentionItem& item, size_t begin, size_t end, float* state, float* scratch) {
  const ItemShape shape = shape_of(args, item);
  const size_t dim = shape.head_dim;
  auto* queries = reinterpret_cast<uint16_t*>(scratch);
  float* work = scratch + (shape.rows * dim + 1) / 2;
  auto* weights = reinterpret_cast<uint16_t*>(work + kRows * (kSplit + dim));
  uint16_t* granule = weights + kRows * kSplit;
  uint16_t* codes = granule + kGranule * dim;
  auto* joined = reinterpret_cast<typename KV::Element*>(codes + (KV::kScaled ? 2 * kSplit * dim : 0));
  pack_queries_bf16(args, item, shape, queries);
  for (size_t split = begin; split < end; ++split) {
    const Span span{visible(args, item.position, split).begin, visible(args, item.position + item.tokens - 1, split).end};
    if (span.begin >= span.end) continue;
    SplitView<KV> stored;
    find_split<KV>(args.kv, item, split, span, joined, stored);
    SplitView<KVBF16> view;
    SplitScales scales;
    if constexpr (KV::kScaled) {
      find_scales<KV>(args.kv, item, split, span, scales);
      pair_split<KV>(stored, span, dim, codes, view);
    } else {
      view = stored;
      if (span.end % 2 == 1) close_pair(view, span.end, dim, granule);
    }
    for (size_t row = 0; row < shape.rows; row += kRows) {
      with_count(shape.rows - row < kRows ? shape.rows - row : kRows, [&](auto count) {
        attend_rows_bf16<decltype(count)::value>(args, item, shape, row, split, view, KV::kScaled ? &scales : nullptr,
                                                 !KV::kScaled && row == 0, queries + row * dim, state, work, weights);
      });
    }
  }
}

void attend_bf16(const AttentionArgs& args, const AttentionItem& item, size_t begin, size_t end, float* state, float* scratch) {
  switch (args.kv.type) {
    case KVType::kE4M3:
      return attend_bf16_as<KVE4M3>(args, item, begin, end, state, scratch);
    case KVType::kE5M2:
      return attend_bf16_as<KVE5M2>(args, item, begin, end, state, scratch);
    case KVType::kInt8:
      return attend_bf16_as<KVInt8>(args, item, begin, end, state, scratch);
    default:
      return attend_bf16_as<KVBF16>(args, item, begin, end, state, scratch);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
