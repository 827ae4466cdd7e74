#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

constexpr ElementwiseKernels elementwise_kernels() { return {}; }

}  // namespace
}  // namespace octavo::OCTAVO_ISA
