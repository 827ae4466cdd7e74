// Measures what this machine can do: read bandwidth, int8, bf16 and fp32 rates.
#pragma once
