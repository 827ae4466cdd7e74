#pragma once

namespace octavo::OCTAVO_ISA {
namespace {

constexpr AttentionKernels attention_kernels() { return {}; }

}  // namespace
}  // namespace octavo::OCTAVO_ISA
