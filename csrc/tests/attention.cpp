// Attention over paged K and V: every type and both arithmetics, against double precision, and rows that know nothing of their company.
#include "attention.hpp"

#include <algorithm>
#include <numeric>

#include "check.hpp"
#include "kv_formats.hpp"

namespace octavo::test {
namespace {

struct Shape {
  const char* name;
  size_t q_heads, kv_heads, dim, window;
  float softcap;
  bool sinks;
};
const std::vector<Shape> kShapes = {{"grouped", 6, 2, 32, 0, 0.0f, false},
                                    {"window", 4, 1, 48, 50, 0.0f, false},
                                    {"softcap", 2, 2, 16, 0, 3.0f, false},
                                    {"sinks", 8, 1, 32, 17, 0.0f, true}};
const Shape kLongShape = {"window-sinks", 3, 1, 16, 270, 5.0f, true};

// Tokens [first, first + count) of a sequence, whose earlier ones are stored.
struct Run {
  size_t sequence, first, count;
};
// Prefill, a decode, chunks: on both sides of a split's edge.
const std::vector<Run> kMix = {{0, 0, 21}, {1, 130, 1}, {2, 99, 9}, {3, 126, 4}};
constexpr size_t kMixLength = 131;   // of the longest
constexpr size_t kLongLength = 400;  // of a sequence alone, of four splits

// A weight, or its product with a scale, rounded to bf16. The kernel knows it to kWeightError of itself: close to the middle between two
// numbers it may become either, which is `slack` apart.
struct Rounded {
  double value, slack;
};
constexpr double kWeightError = 1e-5;
Rounded rounded_weight(double x) {
  const double value = round_to_bf16(x);
  const double below = round_to_bf16(x * (1.0 - kWeightError)), above = round_to_bf16(x * (1.0 + kWeightError));
  return {value, std::max(value - below, above - value)};
}

// An output in double precision, and how far the kernel's may be from it.
struct Wanted {
  double value, bound;
};

class PagedCase {
public:
  // Slots that no token is written to hold bytes of 255: NaN, in all types but int8, and NaN for a scale.
  PagedCase(const Subject& subject, const Shape& shape, const KVFormat& format, size_t block_size, size_t sequences = kMix.size(),
            size_t length = kMixLength)
      : subject_(subject),
        shape_(shape),
        length_(length),
        block_size_(block_size),
        max_blocks_((length + block_size - 1) / block_size),
        storage_(format.storage(subject.isa, sequences * max_blocks_, block_size, shape.kv_heads, shape.dim)),
        queries_(normals(sequences * length * shape.q_heads * shape.dim, 101)),
        sinks_(normals(shape.q_heads, 102)) {
    Random random(103);
    table_.resize(sequences * max_blocks_);
    std::iota(table_.begin(), table_.end(), 0);
    storage_.import_blocks(table_.data(), table_.size(), std::vector<uint8_t>(storage_.nbytes(), 255).data());
    for (size_t i = table_.size(); i > 1; --i) std::swap(table_[i - 1], table_[random.below(i)]);
    const size_t width = shape.kv_heads * shape.dim;
    const ActivationBuffer k(normals(sequences * length * width, 104), width), v(normals(sequences * length * width, 105), width);
    std::vector<int32_t> slots;
    for (size_t s = 0; s < sequences; ++s)
      for (size_t p = 0; p < length; ++p) slots.push_back(static_cast<int32_t>(slot(s, p)));
    subject.kernels.rope.kv_write({k.rows(), v.rows(), storage_.layer(0), slots.data()}, 0, slots.size());
    keys_.resize(table_.size() * block_size * width);
    values_.resize(keys_.size());
    for (size_t b = 0; b < table_.size(); ++b) storage_.read(0, b, &keys_[b * block_size * width], &values_[b * block_size * width]);
  }

  // The outputs of one step.
  ActivationBuffer attend(const std::vector<Run>& runs, ThreadPool& pool, BufferKind kind = BufferKind::kF32) const {
    const size_t width = shape_.q_heads * shape_.dim;
    std::vector<float> q;
    std::vector<int32_t> positions, starts{0}, lengths, table;
    for (const Run& run : runs) {
      const float* first = &queries_[(run.sequence * length_ + run.first) * width];
      q.insert(q.end(), first, first + run.count * width);
      for (size_t i = 0; i < run.count; ++i) positions.push_back(static_cast<int32_t>(run.first + i));
      starts.push_back(static_cast<int32_t>(positions.size()));
      lengths.push_back(static_cast<int32_t>(run.first + run.count));
      const auto blocks = table_.begin() + static_cast<std::ptrdiff_t>(run.sequence * max_blocks_);
      table.insert(table.end(), blocks, blocks + static_cast<std::ptrdiff_t>(max_blocks_));
    }
    const size_t tokens = positions.size();
    const ActivationBuffer in(q, width);
    ActivationBuffer out(kind, tokens, width);
    AttentionScratch scratch;
    const AttentionArgs args{in.rows(),
                             out.rows(),
                             storage_.layer(0),
                             {tokens, runs.size(), 0, nullptr, positions.data(), starts.data(), lengths.data(), nullptr},
                             {table.data(), max_blocks_, nullptr},
                             shape_.sinks ? sinks_.data() : nullptr,
                             shape_.q_heads,
                             shape_.window,
                             scale(),
                             shape_.softcap,
                             false};
    run_attention(subject_.kernels, pool, args, scratch);
    return out;
  }

  // One head's output of a token, from K and V as stored. Of bf16 products the documented roundings are made, and no others.
  std::vector<Wanted> reference(size_t sequence, size_t position, size_t head) const {
    const size_t first = shape_.window != 0 && position + 1 > shape_.window ? position + 1 - shape_.window : 0;
    const size_t kv_head = head / (shape_.q_heads / shape_.kv_heads);
    const std::vector<double> scores = scores_of(sequence, position, head, first);
    double sum = shape_.sinks ? std::exp(static_cast<double>(sinks_[head])) : 0.0, sum_slack = 0.0;
    std::vector<double> out(shape_.dim), slack(shape_.dim);
    for (size_t split = first / kSplit * kSplit; split <= position; split += kSplit) {
      const size_t begin = std::max(split, first), end = std::min(split + kSplit, position + 1);
      const auto from = scores.begin() - static_cast<std::ptrdiff_t>(first);
      const double largest = *std::max_element(from + static_cast<std::ptrdiff_t>(begin), from + static_cast<std::ptrdiff_t>(end));
      for (size_t p = begin; p < end; ++p) {
        const double weight = std::exp(scores[p - first] - largest), scale = value_scale(sequence, p, kv_head);
        const Rounded met = storage_.layer(0).bf16_products ? rounded_weight(weight * scale) : Rounded{weight * scale, 0.0};
        const bool scaled = storage_.layer(0).scales != KVScales::kNone;
        sum += std::exp(largest) * (scaled ? weight : met.value);
        sum_slack += std::exp(largest) * (scaled ? 0.0 : met.slack);
        for (size_t e = 0; e < shape_.dim; ++e) {
          const double value = std::exp(largest) / scale * stored(values_, sequence, p, kv_head, e);
          out[e] += met.value * value;
          slack[e] += met.slack * std::fabs(value);
        }
      }
    }
    std::vector<Wanted> wanted;
    for (size_t e = 0; e < shape_.dim; ++e) wanted.push_back({out[e] / sum, 1e-5 + (slack[e] + std::fabs(out[e] / sum) * sum_slack) / sum});
    return wanted;
  }

private:
  size_t slot(size_t sequence, size_t position) const {
    const size_t block = static_cast<size_t>(table_[sequence * max_blocks_ + position / block_size_]);
    return block * block_size_ + position % block_size_;
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.dim)); }
  double stored(const std::vector<float>& numbers, size_t sequence, size_t position, size_t kv_head, size_t e) const {
    return static_cast<double>(numbers[(slot(sequence, position) * shape_.kv_heads + kv_head) * shape_.dim + e]);
  }
  // What a token's codes of V are multiplied with; 1 of wide types.
  double value_scale(size_t sequence, size_t position, size_t kv_head) const {
    const KVLayerView kv = storage_.layer(0);
    if (kv.scales == KVScales::kNone) return 1.0;
    if (kv.scales == KVScales::kStatic) return static_cast<double>(kv.v_scale);
    const size_t at = slot(sequence, position);
    const uint32_t own = static_cast<uint32_t>(kv.v_own[kv_own_index(kv, at / block_size_, kv_head, at % block_size_)]) << 16;
    float scale;
    std::memcpy(&scale, &own, sizeof scale);
    return static_cast<double>(scale * kv.v_scale);
  }
  // Of positions [first, position].
  std::vector<double> scores_of(size_t sequence, size_t position, size_t head, size_t first) const {
    const float* q = &queries_[((sequence * length_ + position) * shape_.q_heads + head) * shape_.dim];
    const size_t kv_head = head / (shape_.q_heads / shape_.kv_heads);
    std::vector<double> scores;
    for (size_t p = first; p <= position; ++p) {
      double score = 0.0;
      for (size_t e = 0; e < shape_.dim; ++e) {
        const double element = static_cast<double>(q[e] * scale());
        score += (storage_.layer(0).bf16_products ? round_to_bf16(element) : element) * stored(keys_, sequence, p, kv_head, e);
      }
      if (shape_.softcap > 0.0f) score = static_cast<double>(shape_.softcap) * std::tanh(score / static_cast<double>(shape_.softcap));
      scores.push_back(score);
    }
    return scores;
  }

  const Subject& subject_;
  Shape shape_;
  size_t length_, block_size_, max_blocks_;
  KVStorage storage_;
  std::vector<float> queries_, sinks_, keys_, values_;  // K and V as stored, by slot
  std::vector<int32_t> table_;
};

void check_run(const Subject& subject, const PagedCase& paged, const Shape& shape, const Run& run, const float* outputs,
               const std::string& name) {
  for (size_t i = 0; i < run.count; ++i) {
    for (size_t head = 0; head < shape.q_heads; ++head) {
      for (const Wanted& wanted : paged.reference(run.sequence, run.first + i, head))
        subject.report.hold(std::fabs(static_cast<double>(*outputs++) - wanted.value) <= wanted.bound, name);
    }
  }
}

// Each token by itself, each sequence by itself, and one thread: the same bits.
void check_company(const Subject& subject, const PagedCase& paged, const std::vector<float>& outputs, const std::string& name) {
  ThreadPool alone({-1});
  subject.report.hold(same_bits(paged.attend(kMix, alone).floats(), outputs), name + ": threads");
  size_t at = 0;
  for (const Run& run : kMix) {
    const std::vector<float> whole = paged.attend({run}, subject.pool).floats();
    subject.report.hold(std::equal(whole.begin(), whole.end(), outputs.begin() + static_cast<std::ptrdiff_t>(at)), name + ": sequences");
    for (size_t i = 0; i < run.count; ++i) {
      const std::vector<float> token = paged.attend({{run.sequence, run.first + i, 1}}, alone).floats();
      subject.report.hold(std::equal(token.begin(), token.end(), outputs.begin() + static_cast<std::ptrdiff_t>(at)), name + ": tokens");
      at += token.size();
    }
  }
}

void check_case(const Subject& subject, const Shape& shape, const KVFormat& format) {
  const std::string name = std::string("attention-") + shape.name + "-" + format.name();
  const PagedCase paged(subject, shape, format, 16), small_blocks(subject, shape, format, 8);
  const ActivationBuffer out = paged.attend(kMix, subject.pool);
  const std::vector<float> outputs = out.floats();
  fingerprint(subject, name, outputs);
  const float* at = outputs.data();
  for (const Run& run : kMix) {
    check_run(subject, paged, shape, run, at, name);
    at += run.count * shape.q_heads * shape.dim;
  }
  check_company(subject, paged, outputs, name);
  subject.report.hold(same_bits(small_blocks.attend(kMix, subject.pool).floats(), outputs), name + ": block size");
  const size_t tokens = outputs.size() / (shape.q_heads * shape.dim);
  ActivationBuffer wanted(BufferKind::kQ8, tokens, shape.q_heads * shape.dim);
  subject.kernels.elementwise.quantize({out.rows(), wanted.rows()}, 0, tokens);
  subject.report.hold(paged.attend(kMix, subject.pool, BufferKind::kQ8).bytes() == wanted.bytes(), name + ": quantized");
}

// A context of several splits: prefilled at once, in chunks, and decoded where splits begin and end, on one thread or two.
void check_long(const Subject& subject, const Shape& shape, const KVFormat& format) {
  const std::string name = std::string("long-attention-") + shape.name + "-" + format.name();
  const PagedCase paged(subject, shape, format, 16, 1, kLongLength);
  ThreadPool alone({-1});
  const std::vector<float> whole = paged.attend({{0, 0, kLongLength}}, subject.pool).floats();
  fingerprint(subject, name, whole);
  const size_t width = shape.q_heads * shape.dim;
  size_t first = 0;
  for (const size_t count : {size_t{1}, size_t{99}, size_t{29}, size_t{200}, size_t{71}}) {
    const std::vector<float> chunk = paged.attend({{0, first, count}}, alone).floats();
    subject.report.hold(std::memcmp(chunk.data(), &whole[first * width], chunk.size() * sizeof(float)) == 0, name + ": chunks");
    first += count;
  }
  for (const size_t position : {size_t{127}, size_t{128}, size_t{255}, size_t{256}, kLongLength - 2, kLongLength - 1}) {
    for (ThreadPool* pool : {&alone, &subject.pool}) {
      const std::vector<float> token = paged.attend({{0, position, 1}}, *pool).floats();
      subject.report.hold(std::memcmp(token.data(), &whole[position * width], width * sizeof(float)) == 0, name + ": decodes");
    }
    check_run(subject, paged, shape, {0, position, 1}, &whole[position * width], name);
  }
}

// K and V of the types that bf16 holds, with products of bf16.
std::vector<KVFormat> with_bf16_products() {
  std::vector<KVFormat> formats;
  for (KVFormat format : kKVFormats) {
    if (format.type == "fp16" || format.type == "fp32") continue;
    format.bf16_products = true;
    formats.push_back(format);
  }
  return formats;
}

}  // namespace

void test_attention(const Subject& subject) {
  for (const Shape& shape : kShapes) check_case(subject, shape, kKVFormats[0]);
  for (size_t i = 1; i < kKVFormats.size(); ++i) check_case(subject, kShapes[i % kShapes.size()], kKVFormats[i]);
  for (const KVFormat& format : with_bf16_products()) {
    for (const Shape& shape : kShapes) check_case(subject, shape, format);
  }
  check_long(subject, kLongShape, kKVFormats[0]);
  for (const KVFormat& format : with_bf16_products()) check_long(subject, kLongShape, format);
}

}  // namespace octavo::test
