#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

constexpr RopeKernels rope_kernels() { return {}; }

}  // namespace
}  // namespace octavo::OCTAVO_ISA
