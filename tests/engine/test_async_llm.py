"""AsyncLLMEngine over scripted engine processes."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from contextlib import aclosing, asynccontextmanager

import pytest

from octavo import AsyncLLMEngine, SamplingParams
from octavo.engine.client import EngineState
from octavo.errors import EngineDeadError, InvalidRequestError, RequestFailedError
from support import scripted

LONG = SamplingParams(max_tokens=900, ignore_eos=True)
SLOW = {"step_seconds": 0.02}


@pytest.fixture
def engine(make_args):
    """An AsyncLLMEngine, shut down at the end: ``async with engine(…) as e``."""

    @asynccontextmanager
    async def start(*args, **kwargs):
        made = AsyncLLMEngine.from_engine_args(make_args(*args, **kwargs))
        try:
            yield made
        finally:
            made.shutdown()

    return start


async def collect(stream) -> list:
    return [output async for output in stream]


async def idle(engine: AsyncLLMEngine, steps: int = 3) -> None:
    """Wait until the engine has nothing left; it may take so many more steps."""
    before = engine.stats.steps
    async with asyncio.timeout(10):
        while engine.stats.running or engine.stats.waiting:
            await asyncio.sleep(0.005)
    assert engine.stats.steps - before <= steps


async def reaches(engine: AsyncLLMEngine, running: int, waiting: int) -> None:
    """Wait until so many requests run and wait."""
    async with asyncio.timeout(10):
        while (engine.stats.running, engine.stats.waiting) != (running, waiting):
            await asyncio.sleep(0.002)


async def survives(engine: AsyncLLMEngine) -> None:
    """A normal request answers, nothing runs or waits, and every block is free or cached."""
    (output,) = await collect(engine.generate("ok?", SamplingParams(max_tokens=3, ignore_eos=True), output_kind="final"))
    assert len(output.outputs[0].token_ids) == 3
    await idle(engine)
    (group,) = engine.stats.kv["groups"]
    assert group["slots"]["held"] == 0
    assert engine.health().state == EngineState.IDLE
    await engine.check_health()


async def test_outputs_are_cumulative_like_vllms(engine):
    async with engine([["ABC", "DEF"]]) as e:
        outputs = await collect(e.generate("x", SamplingParams(seed=0), "1"))
    assert outputs[-1].outputs[0].text == "ABCDEF" and outputs[-1].finished and outputs[-1].request_id == "1"
    texts = [o.outputs[0].text for o in outputs]
    assert all(b.startswith(a) for a, b in itertools.pairwise(texts))
    assert [o.finished for o in outputs] == [False] * (len(outputs) - 1) + [True]


async def test_deltas_join_to_the_whole(engine):
    async with engine([["ABC", "DEF"]]) as e:
        deltas = await collect(e.generate("x", SamplingParams(seed=0), output_kind="delta"))
        (final,) = await collect(e.generate("x", SamplingParams(seed=0), output_kind="final"))
    assert "".join(o.outputs[0].text for o in deltas) == final.outputs[0].text == "ABCDEF"
    assert [t for o in deltas for t in o.outputs[0].token_ids] == final.outputs[0].token_ids


async def test_api_01_a_stop_string_stops_the_engine_too(engine):
    async with engine([["ABC", "DEF", "G", "HI", "J", *["x"] * 800]], script=SLOW) as e:
        deltas = await collect(e.generate("x", SamplingParams(stop=["DEFGHIJ"], max_tokens=800), output_kind="delta"))
        assert "".join(o.outputs[0].text for o in deltas) == "ABC" and deltas[-1].outputs[0].finish_reason == "stop"
        await idle(e)
        assert e.stats.generation_tokens < 20
        await survives(e)


async def test_api_24_a_stream_of_three_ends_with_the_last(engine):
    async with engine([["a"], ["b", "b"], ["c", "c", "c", "c"]]) as e:
        for _ in range(2):
            deltas = await collect(e.generate("x", SamplingParams(n=3, seed=0, max_tokens=3), output_kind="delta"))
            parts = [part for output in deltas for part in output.outputs]
            assert ["".join(p.text for p in parts if p.index == i) for i in range(3)] == ["a", "bb", "ccc"]
            ends = {p.index: p.finish_reason for p in parts if p.finish_reason}
            assert ends == {0: "stop", 1: "stop", 2: "length"}
            assert sum(p.finish_reason is not None for p in parts) == 3


async def test_many_at_once(engine):
    async with engine(script={"vocab_size": 200}, runner_cls=scripted.RANDOM, num_gpu_blocks_override=40) as e:

        async def one(number: int) -> list[int]:
            params = SamplingParams(seed=number, max_tokens=20, ignore_eos=True)
            (output,) = await collect(e.generate([5 + number], params, output_kind="final"))
            return output.outputs[0].token_ids

        together = await asyncio.gather(*(one(number) for number in range(30)))
        assert together[7] == await one(7) and len({tuple(ids) for ids in together}) == 30
        await survives(e)


@pytest.mark.parametrize("leave", ["close", "cancel", "break"])
async def test_api_32_a_request_whose_client_leaves_stops_within_a_step(engine, leave):
    """In prefill, while queued, and while decoding."""
    async with engine(script=SLOW, max_num_seqs=2, max_num_batched_tokens=8) as e:
        decoding = e.generate("d", LONG)
        await anext(decoding)
        prefilling = asyncio.create_task(anext(e.generate([5] * 100, LONG, "prefill")))
        queued = asyncio.create_task(anext(e.generate("q", LONG, "queued")))
        await reaches(e, running=2, waiting=1)
        generated = e.stats.generation_tokens
        if leave == "cancel":
            task = asyncio.create_task(collect(decoding))
            await asyncio.sleep(0)
            task.cancel()
        elif leave == "close":
            await decoding.aclose()
        else:
            async with aclosing(decoding) as stream:
                async for _ in stream:
                    break
        for task in (prefilling, queued):
            task.cancel()
        await asyncio.gather(prefilling, queued, return_exceptions=True)
        await idle(e)
        assert e.stats.generation_tokens - generated <= 4  # the queued one never ran
        await survives(e)


async def test_api_33_fifty_cancelled_streams_with_logprobs(engine):
    async with engine(script={"step_seconds": 0.002}) as e:
        for number in range(50):
            stream = e.generate("x", SamplingParams(max_tokens=500, ignore_eos=True, logprobs=3), f"r{number}")
            for _ in range(3):
                output = await anext(stream)
            assert len(output.outputs[0].logprobs) == len(output.outputs[0].token_ids)
            await stream.aclose()
        await survives(e)


async def test_kv_06_three_hundred_streams_closed_early(engine):
    async with engine(num_gpu_blocks_override=64, max_num_seqs=16, max_num_batched_tokens=32) as e:

        async def leave_early(number: int) -> None:
            stream = e.generate([5 + number % 50] * (1 + number % 60), LONG if number % 2 else SamplingParams(max_tokens=30))
            async with aclosing(stream), asyncio.timeout(0.05 * (number % 5)):
                for _ in range(1 + number % 3):
                    await anext(stream)

        results = await asyncio.gather(*(leave_early(number) for number in range(300)), return_exceptions=True)
        assert {type(r) for r in results} <= {type(None), TimeoutError, StopAsyncIteration, InvalidRequestError}
        await survives(e)


async def test_abort_ends_the_stream_with_what_is_there(engine):
    async with engine(script=SLOW) as e:
        streams = [e.generate("x", LONG, name) for name in ("a", "b")]
        for stream in streams:
            await anext(stream)
        await e.abort(["a", "b", "unknown"])
        for stream in streams:
            *_, last = await collect(stream)
            assert last.finished and last.outputs[0].finish_reason == "abort" and last.outputs[0].token_ids
        await survives(e)


async def test_api_34_one_request_id_twice_at_once(engine):
    async with engine(script=SLOW) as e:
        first = e.generate("x", LONG, "same")
        await anext(first)
        with pytest.raises(InvalidRequestError, match="request_id = same"):
            await anext(e.generate("x", LONG, "same"))
        await first.aclose()
        again = e.generate("x", LONG, "same")
        assert (await anext(again)).outputs[0].token_ids
        await again.aclose()
        await survives(e)


async def test_invalid_requests_never_reach_the_engine(engine):
    async with engine() as e:
        for prompt, params in (("", None), ([-1], None), ("x", SamplingParams(max_tokens=10**6)), ("x", SamplingParams(logprobs=50))):
            with pytest.raises(InvalidRequestError):
                await anext(e.generate(prompt, params))
        assert e.stats.steps == 0
        await survives(e)


async def test_a_request_that_fails_by_itself_raises_in_its_own_stream(engine):
    async with engine(script={"fail_request_at": 3}) as e:
        tokens = []
        with pytest.raises(RequestFailedError, match="the script says so"):
            async for output in e.generate("x", LONG, output_kind="delta"):
                tokens += output.outputs[0].token_ids
                assert output.outputs[0].finish_reason is None
                await asyncio.sleep(0.02)  # so that the last token and the error come together
        assert len(tokens) == 3
        await survives(e)


@pytest.mark.parametrize("death", ["raise", "kill"])
async def test_ob_01_every_stream_learns_that_the_engine_died(engine, death):
    script = SLOW | ({"raise_at_step": 12} if death == "raise" else {})
    async with engine(script=script) as e:
        streams = [e.generate("x", LONG) for _ in range(3)]
        for stream in streams:
            await anext(stream)
        if death == "kill":
            os.kill(e._process.pid, signal.SIGKILL)
        async with asyncio.timeout(5):
            results = await asyncio.gather(*map(collect, streams), return_exceptions=True)
        assert [type(r) for r in results] == [EngineDeadError] * 3
        assert e.health().state == EngineState.DEAD
        with pytest.raises(EngineDeadError):
            await e.check_health()
        with pytest.raises(EngineDeadError):
            await anext(e.generate("x"))


async def test_shutdown_ends_streams(engine):
    async with engine(script=SLOW) as e:
        stream = e.generate("x", LONG)
        await anext(stream)
        e.shutdown()
        with pytest.raises(EngineDeadError):
            await collect(stream)


async def test_priority_and_salt_reach_the_engine(engine):
    async with engine(script=SLOW, max_num_seqs=1, scheduling_policy="priority") as e:
        params = SamplingParams(max_tokens=10, ignore_eos=True)
        ends = []

        async def one(name: str, priority: int) -> None:
            await collect(e.generate([5] * 40, params, name, priority=priority, cache_salt=name))
            ends.append(name)

        low = asyncio.create_task(one("low", 3))
        await reaches(e, running=1, waiting=0)
        await asyncio.gather(low, one("high", 0))
        assert ends == ["high", "low"]
        hits = e.stats.prefix_hits
        await collect(e.generate([5] * 40, params, cache_salt="other"))
        assert e.stats.prefix_hits == hits
        await collect(e.generate([5] * 40, params, cache_salt="high"))
        assert e.stats.prefix_hits > hits
