#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

constexpr SamplingKernels sampling_kernels() { return {}; }

}  // namespace
}  // namespace octavo::OCTAVO_ISA
