// Runs kernels once each, so that a tool can count their instructions (benchmarks/guard/callgrind.py): nothing here takes a time.
//
// usage: kernel_count <instruction set>            one line a case on stdout, in the order in which octavo_counted runs
#include <cstdio>
#include <exception>
#include <numeric>

#include "program.hpp"

namespace {

using namespace octavo;

constexpr size_t kOutputs = 256, kColumns = 512, kContext = 192;

// A step of one sequence's last `rows` tokens; what its arrays point to.
struct Step {
  explicit Step(size_t rows, size_t length) : numbers(length), slots(rows), starts{0, static_cast<int32_t>(rows)} {
    std::iota(numbers.begin(), numbers.end(), 0);
    std::iota(slots.begin(), slots.end(), static_cast<int32_t>(length - rows));
    lengths = {static_cast<int32_t>(length)};
    arrays.token_ids = {slots.data(), rows};
    arrays.positions = {slots.data(), rows};
    arrays.query_start = {starts.data(), 2};
    arrays.seq_lens = {lengths.data(), 1};
    arrays.logits_rows = {numbers.data(), 1};
    arrays.block_tables = {{numbers.data(), 1, (length + 15) / 16}};
    arrays.slot_mapping = {{slots.data(), rows}};
  }

  std::vector<int32_t> numbers, slots, starts, lengths;
  StepArrays arrays;
};

}  // namespace

extern "C" __attribute__((noinline)) void octavo_counted(Program& program, const std::vector<const KVStorage*>& kv,
                                                         const StepArrays& arrays) {
  program.run(kv, arrays);
}

namespace {

struct Stored {
  const char* name;
  size_t block, block_bytes;
};

class Counter {
public:
  explicit Counter(const std::string& isa) : isa_(isa), pool_(std::make_shared<ThreadPool>(std::vector<int>{-1})) {}

  void linear(const Stored& format, size_t rows) {
    std::vector<uint8_t> data(kOutputs * kColumns / format.block * format.block_bytes);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 2654435761u >> 20 & 31);
    const auto weight = std::make_shared<PackedWeight>(isa_, *pool_, format.name, kOutputs, kColumns, data.data(), data.size());
    Program program(isa_, pool_);
    const int x = program.add_buffer("f32", kColumns, "tokens"), q = program.add_buffer("q8", kColumns, "tokens");
    const int y = program.add_buffer("f32", kOutputs, "tokens");
    program.add_op({"quantize", {x}, {q}, {}, {}, {}});
    program.add_op({"linear", {q}, {y}, {weight, std::monostate{}}, {1, 0}, {}});
    fill(program, x, kColumns, rows);
    count(std::string("linear ") + format.name, program, {}, rows, rows);
  }

  void norm(size_t rows) {
    Program program(isa_, pool_);
    const int x = program.add_buffer("f32", kColumns, "tokens"), q = program.add_buffer("q8", kColumns, "tokens");
    const auto ones = std::make_shared<const std::vector<float>>(kColumns, 1.0f);
    program.add_op({"rms_norm", {x}, {q}, {ones}, {1}, {1e-5}});
    program.add_op({"add", {x, x}, {x}, {}, {}, {}});
    fill(program, x, kColumns, rows);
    count("rms_norm to q8, add", program, {}, rows, rows);
  }

  // Six query heads over two of K and V, of 64 numbers: rope, write and attention of a prefill and of a decode.
  void attention(size_t rows) {
    const KVStorage storage(isa_, 1, kContext / 16, 16, 2, 64, "bf16", "none", {}, true);
    Program program(isa_, pool_);
    const int q = program.add_buffer("f32", 384, "tokens"), kv = program.add_buffer("f32", 128, "tokens");
    const int out = program.add_buffer("f32", 384, "tokens");
    std::vector<double> frequencies(32);
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = 1.0 / static_cast<double>(1 + i);
    program.add_op(
        {"rope_kv_write", {q, kv, kv}, {q}, {std::make_shared<const std::vector<double>>(frequencies)}, {6, 2, 64, 0, 0, 0}, {1.0}});
    program.add_op({"attention", {q}, {out}, {std::monostate{}}, {0, 0, 6, 0, 0}, {0.125, 0.0}});
    fill(program, q, 384, kContext);
    fill(program, kv, 128, kContext);
    const Step whole(kContext, kContext);
    program.run({&storage}, whole.arrays);
    count("rope, KV write, attention", program, {&storage}, rows, kContext);
  }

private:
  static void fill(Program& program, int buffer, size_t columns, size_t rows) {
    std::vector<float> values(rows * columns);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 22 & 255) - 128) / 64.0f;
    program.write(buffer, values.data(), rows);
  }

  // The first run takes memory and wakes nobody; the second counts.
  void count(const std::string& name, Program& program, const std::vector<const KVStorage*>& kv, size_t rows, size_t length) {
    const Step step(rows, length);
    program.run(kv, step.arrays);
    octavo_counted(program, kv, step.arrays);
    std::printf("%s, %zu row%s\n", name.c_str(), rows, rows == 1 ? "" : "s");
  }

  std::string isa_;
  std::shared_ptr<ThreadPool> pool_;
};

}  // namespace

int main(int count, char** arguments) {
  try {
    Counter counter(count > 1 ? arguments[1] : "generic");
    const Stored formats[] = {{"Q4_0", 32, 18}, {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},
                              {"Q8_0", 32, 34}, {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210}};
    for (const Stored& format : formats)
      for (const size_t rows : {1, 8, 32}) counter.linear(format, rows);
    for (const size_t rows : {1, 32}) counter.norm(rows);
    for (const size_t rows : {size_t{1}, kContext}) counter.attention(rows);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
