// Holds the kernels of each instruction set that this CPU can run to what they are to compute.
//
// usage: kernel_test [instruction set …]           exit status 1 when a check failed
//
// On stdout: "found <instruction set> …", those of this CPU, best first; "bits <instruction set> <what> <hash>" for each result; and
// "checked <instruction set> <checks> <failures>". Results of neon, neon_dotprod and avx2 are the same bits; those of neon_i8mm and avx512
// differ where bf16 is multiplied or a subnormal is rounded to it.
#include <cstdio>
#include <exception>

#include "check.hpp"
#include "cpu.hpp"

namespace octavo::test {

void Report::hold(bool good, const std::string& what) {
  ++checks_;
  if (good) return;
  ++failures_;
  if (what != last_) std::fprintf(stderr, "FAILED on %s: %s\n", isa_.c_str(), what.c_str());
  last_ = what;
}

void Report::fingerprint(const std::string& what, const void* data, size_t bytes) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001B3u;
  std::printf("bits %s %s %016llx\n", isa_.c_str(), what.c_str(), static_cast<unsigned long long>(hash));
}

namespace {

size_t test_isa(const std::string& isa) {
  Report report(isa);
  ThreadPool pool({-1, -1});
  const Subject subject{kernels_for(isa), isa, pool, report};
  test_linear(subject);
  test_rowwise(subject);
  test_kv(subject);
  test_attention(subject);
  test_sampling(subject);
  test_machine(subject);
  std::printf("checked %s %zu %zu\n", isa.c_str(), report.checks(), report.failures());
  return report.failures();
}

}  // namespace
}  // namespace octavo::test

int main(int count, char** arguments) {
  try {
    const std::vector<std::string> given(arguments + 1, arguments + count);
    std::printf("found");
    for (const std::string& isa : octavo::supported_isas()) std::printf(" %s", isa.c_str());
    std::printf("\n");
    size_t failures = 0;
    for (const std::string& isa : given.empty() ? octavo::supported_isas() : given) failures += octavo::test::test_isa(isa);
    return failures == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
