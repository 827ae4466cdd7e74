"""The embedded model through the whole engine: what was promised of a request holds whoever runs beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from octavo import LLM, AsyncEngineArgs, AsyncLLMEngine, SamplingParams
from support.bits import bits

PROMPTS = [
    "The printer folds a sheet",
    "Once upon a time, in a village by the sea, there lived an old clockmaker who",
    "def fibonacci(n):",
    "La capitale de la France est",
    "1, 2, 3, 4,",
]
PARAMS = [
    SamplingParams(temperature=0.0, max_tokens=16, logprobs=3),
    SamplingParams(temperature=0.8, seed=7, max_tokens=16, logprobs=3, top_p=0.9, top_k=40),
    SamplingParams(temperature=1.0, seed=8, max_tokens=16, logprobs=3, repetition_penalty=1.2, presence_penalty=0.5),
    SamplingParams(temperature=0.7, seed=9, max_tokens=16, logprobs=3, min_p=0.05, min_tokens=8),
    SamplingParams(temperature=0.0, max_tokens=16, logprobs=3, frequency_penalty=0.8, logit_bias={198: -5.0}),
]


@pytest.fixture(scope="module")
def llm(smollm2_path) -> Iterator[LLM]:
    with LLM(str(smollm2_path), max_model_len=256, max_num_seqs=8, max_num_batched_tokens=24) as llm:
        yield llm


def test_alone_together_and_from_the_prefix_cache_the_bits_are_the_same(llm):
    together = [bits(output) for output in llm.generate(PROMPTS, PARAMS)]
    for prompt, params, expected in zip(PROMPTS, PARAMS, together, strict=True):
        (cold,) = llm.generate(prompt, params)
        assert bits(cold) == expected
    again = llm.generate(PROMPTS[1] + PROMPTS[1], PARAMS[1])[0]
    warm = llm.generate(PROMPTS[1] + PROMPTS[1], PARAMS[1])[0]
    assert warm.num_cached_tokens > 0 and bits(warm) == bits(again)


def test_text_is_what_the_tokens_say(llm):
    for output in llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=20)):
        ids = output.outputs[0].token_ids
        assert output.outputs[0].text == llm.get_tokenizer().decode(ids, continuation=True)


@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>"])
def test_every_token_that_ends_a_generation_ends_it(llm, end):
    """The file names <|im_end|> alone; llama.cpp stops at both."""
    bias = {llm.get_tokenizer().token_to_id(end): 100.0}
    (output,) = llm.generate(PROMPTS[0], SamplingParams(temperature=0.0, max_tokens=5, logit_bias=bias))
    assert (output.outputs[0].finish_reason, output.outputs[0].text) == ("stop", "")


def test_prompt_logprobs_agree_with_the_logprobs_of_generating_the_same(llm):
    """The prompt continued greedily, and then scored as a prompt: the same positions, the same values."""
    (made,) = llm.generate(PROMPTS[0], SamplingParams(temperature=0.0, max_tokens=12, logprobs=0))
    (completion,) = made.outputs
    whole = [*made.prompt_token_ids, *completion.token_ids]
    (scored,) = llm.generate([whole], SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0))
    assert len(scored.prompt_logprobs) == len(whole) and scored.prompt_logprobs[0] is None
    tail = scored.prompt_logprobs[len(made.prompt_token_ids) :]
    assert [entry[t].logprob for entry, t in zip(tail, completion.token_ids, strict=True)] == [
        entry[t].logprob for entry, t in zip(completion.logprobs, completion.token_ids, strict=True)
    ]


def test_api_17_a_strong_bias_forces_a_token(llm):
    (output,) = llm.generate("Hello", SamplingParams(temperature=1.0, max_tokens=4, logit_bias={500: 100.0}))
    assert output.outputs[0].token_ids == [500] * 4


def test_an_engine_process_gives_the_same_bits(llm, smollm2_path):
    expected = [bits(output) for output in llm.generate(PROMPTS, PARAMS)]

    async def serve() -> list[tuple]:
        engine = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model=str(smollm2_path), max_model_len=256, max_num_seqs=3))

        async def one(prompt: str, params: SamplingParams) -> tuple:
            *_, last = [output async for output in engine.generate(prompt, params)]
            return bits(last)

        try:
            return await asyncio.gather(*map(one, PROMPTS, PARAMS))
        finally:
            engine.shutdown()

    assert asyncio.run(serve()) == expected
