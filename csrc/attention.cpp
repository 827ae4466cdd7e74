#include "attention.hpp"

namespace octavo {

void run_attention(const KernelTable&, ThreadPool&, const AttentionArgs&, AttentionScratch&) {}

}  // namespace octavo
