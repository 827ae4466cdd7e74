"""Serve several requests at once from asyncio, each streamed as it comes; the engine runs in a process of its own."""

import asyncio

from octavo import AsyncEngineArgs, AsyncLLMEngine, SamplingParams


async def ask(engine: AsyncLLMEngine, request_id: str, prompt: str) -> None:
    params = SamplingParams(temperature=0.2, max_tokens=48)
    async for output in engine.generate(prompt, params, request_id=request_id):
        text = output.outputs[0].text  # all of it so far
        print(f"[{request_id}] {text[-60:]!r}")


async def main() -> None:
    engine = AsyncLLMEngine.from_engine_args(
        AsyncEngineArgs(
            model="smollm2",
            tensor_parallel_size=1,
            gpu_memory_utilization=0.92,
            max_model_len=2048,
            block_size=16,
            enable_prefix_caching=True,
            enforce_eager=False,
            max_num_seqs=256,
            kv_cache_dtype="auto",
        )
    )
    try:
        await asyncio.gather(
            ask(engine, "1", "A printer's octavo is"),
            ask(engine, "2", "The latency of a request is"),
        )
    finally:
        engine.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
