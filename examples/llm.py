"""Generate from Python: one call, many prompts."""

from octavo import LLM, SamplingParams

llm = LLM(
    model="smollm2",
    tensor_parallel_size=1,
    gpu_memory_utilization=0.92,
    block_size=16,
    max_model_len=2048,
    enable_chunked_prefill=True,
    kv_cache_dtype="auto",
)
outputs = llm.generate(
    ["Analyze enterprise latency budgets..."],
    SamplingParams(temperature=0.2, max_tokens=64, ignore_eos=False),
)
for output in outputs:
    print(output.outputs[0].text)
