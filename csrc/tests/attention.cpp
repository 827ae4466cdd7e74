// Attention over paged K and V: every type, against double precision, and rows that know nothing of their company.
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

// Tokens [first, first + count) of a sequence, whose earlier ones are stored.
struct Run {
  size_t sequence, first, count;
};
// Prefill, a decode, chunks: on both sides of a split's edge.
const std::vector<Run> kMix = {{0, 0, 21}, {1, 130, 1}, {2, 99, 9}, {3, 126, 4}};
constexpr size_t kLength = 131;  // of the longest

class PagedCase {
public:
  PagedCase(const Subject& subject, const Shape& shape, const KVFormat& format, size_t block_size)
      : subject_(subject),
        shape_(shape),
        block_size_(block_size),
        max_blocks_((kLength + block_size - 1) / block_size),
        storage_(format.storage(subject.isa, kMix.size() * max_blocks_, block_size, shape.kv_heads, shape.dim)),
        queries_(normals(kMix.size() * kLength * shape.q_heads * shape.dim, 101)),
        sinks_(normals(shape.q_heads, 102)) {
    Random random(103);
    table_.resize(kMix.size() * max_blocks_);
    std::iota(table_.begin(), table_.end(), 0);
    for (size_t i = table_.size(); i > 1; --i) std::swap(table_[i - 1], table_[random.below(i)]);
    const size_t width = shape.kv_heads * shape.dim;
    const ActivationBuffer k(normals(kMix.size() * kLength * width, 104), width), v(normals(kMix.size() * kLength * width, 105), width);
    std::vector<int32_t> slots;
    for (size_t s = 0; s < kMix.size(); ++s)
      for (size_t p = 0; p < kLength; ++p) slots.push_back(static_cast<int32_t>(slot(s, p)));
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
      const float* first = &queries_[(run.sequence * kLength + run.first) * width];
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
                             shape_.softcap};
    run_attention(subject_.kernels, pool, args, scratch);
    return out;
  }

  // One head's output of a token, in double precision from K and V as stored.
  std::vector<double> reference(size_t sequence, size_t position, size_t head) const {
    const float* q = &queries_[((sequence * kLength + position) * shape_.q_heads + head) * shape_.dim];
    const size_t kv_head = head / (shape_.q_heads / shape_.kv_heads);
    const size_t first = shape_.window != 0 && position + 1 > shape_.window ? position + 1 - shape_.window : 0;
    double sum = shape_.sinks ? std::exp(static_cast<double>(sinks_[head])) : 0.0;
    std::vector<double> out(shape_.dim);
    for (size_t p = first; p <= position; ++p) {
      const size_t at = (slot(sequence, p) * shape_.kv_heads + kv_head) * shape_.dim;
      double score = 0.0;
      for (size_t e = 0; e < shape_.dim; ++e) score += static_cast<double>(q[e]) * static_cast<double>(keys_[at + e]);
      score *= static_cast<double>(scale());
      if (shape_.softcap > 0.0f) score = static_cast<double>(shape_.softcap) * std::tanh(score / static_cast<double>(shape_.softcap));
      sum += std::exp(score);
      for (size_t e = 0; e < shape_.dim; ++e) out[e] += std::exp(score) * static_cast<double>(values_[at + e]);
    }
    for (double& value : out) value /= sum;
    return out;
  }

private:
  size_t slot(size_t sequence, size_t position) const {
    const size_t block = static_cast<size_t>(table_[sequence * max_blocks_ + position / block_size_]);
    return block * block_size_ + position % block_size_;
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.dim)); }

  const Subject& subject_;
  Shape shape_;
  size_t block_size_, max_blocks_;
  KVStorage storage_;
  std::vector<float> queries_, sinks_, keys_, values_;  // K and V as stored, by slot
  std::vector<int32_t> table_;
};

void check_outputs(const Subject& subject, const PagedCase& paged, const Shape& shape, const std::vector<float>& outputs,
                   const std::string& name) {
  size_t at = 0;
  for (const Run& run : kMix) {
    for (size_t i = 0; i < run.count; ++i) {
      for (size_t head = 0; head < shape.q_heads; ++head) {
        for (const double wanted : paged.reference(run.sequence, run.first + i, head))
          subject.report.hold(std::fabs(static_cast<double>(outputs[at++]) - wanted) <= 1e-5, name);
      }
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
  check_outputs(subject, paged, shape, outputs, name);
  check_company(subject, paged, outputs, name);
  subject.report.hold(same_bits(small_blocks.attend(kMix, subject.pool).floats(), outputs), name + ": block size");
  const size_t tokens = outputs.size() / (shape.q_heads * shape.dim);
  ActivationBuffer wanted(BufferKind::kQ8, tokens, shape.q_heads * shape.dim);
  subject.kernels.elementwise.quantize({out.rows(), wanted.rows()}, 0, tokens);
  subject.report.hold(paged.attend(kMix, subject.pool, BufferKind::kQ8).bytes() == wanted.bytes(), name + ": quantized");
}

}  // namespace

void test_attention(const Subject& subject) {
  for (const Shape& shape : kShapes) check_case(subject, shape, kKVFormats[0]);
  for (size_t i = 1; i < kKVFormats.size(); ++i) check_case(subject, kShapes[i % kShapes.size()], kKVFormats[i]);
}

}  // namespace octavo::test
