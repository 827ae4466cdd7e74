#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

constexpr LinearKernels linear_kernels() { return {}; }

}  // namespace
}  // namespace octavo::OCTAVO_ISA
