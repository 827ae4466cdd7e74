"""The step loop over scripted and random runners, whose KV pool checks every block table."""

from __future__ import annotations

import dataclasses
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.config import EngineArgs
from octavo.engine.core import EngineCore, load_runner_class
from octavo.errors import InvalidRequestError
from octavo.outputs import EngineCoreOutput
from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams
from support import scripted

SCRIPT = {"vocab_size": 40, "eos_token_ids": [0, 7]}


def request(number: int, prompt: list[int], output: list[int] = (), priority: int = 0, **params) -> EngineCoreRequest:
    fields = {"seed": number, "max_tokens": 12} | params
    return EngineCoreRequest(
        request_id=f"r{number}", prompt_token_ids=prompt, sampling_params=SamplingParams(**fields), output_token_ids=list(output),
        priority=priority, arrival_time=float(number),
    )  # fmt: skip


def run(core: EngineCore, max_steps: int = 5000) -> dict[str, list[EngineCoreOutput]]:
    """Step until idle; every output by request. The books must balance at the end."""
    got: dict[str, list[EngineCoreOutput]] = {}
    for _ in range(max_steps):
        if not core.has_unfinished_requests:
            core.check_integrity()
            return got
        for output in core.step().outputs:
            got.setdefault(output.request_id, []).append(output)
    raise AssertionError("the engine does not come to an end")


def tokens(outputs: list[EngineCoreOutput]) -> list[int]:
    return [token for output in outputs for token in output.new_token_ids]


def summary(got: dict[str, list[EngineCoreOutput]]) -> dict[str, tuple]:
    """All that must not depend on scheduling: tokens, logprobs, ends."""
    return {
        request_id: (
            tokens(outputs),
            [(entry.token_ids, entry.logprobs, entry.rank) for o in outputs for entry in o.new_logprobs or ()],
            outputs[-1].finish_reason,
            outputs[-1].stop_reason,
        )
        for request_id, outputs in got.items()
    }


def test_setting_the_machines_clock_ends_no_request_and_changes_no_order(make_args, monkeypatch):
    """Deadlines and arrivals are on a clock that nobody sets."""
    core = EngineCore(make_args([["a", "b", "c"]], max_num_seqs=1))
    params = SamplingParams(max_tokens=3, seed=0)
    now = time.monotonic()
    core.add_request(EngineCoreRequest("first", [1], params, deadline=now + 60))
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86400)
    core.add_request(EngineCoreRequest("second", [2], params, deadline=time.monotonic() + 60))
    monkeypatch.setattr(time, "time", lambda: real() - 86400)
    core.add_request(EngineCoreRequest("third", [3], params, deadline=time.monotonic() + 60))
    got = run(core)
    assert [tokens(outputs) for outputs in got.values()] == [tokens(got["first"])] * 3
    assert list(got) == ["first", "second", "third"]
    times = [outputs[-1].times for outputs in got.values()]
    assert all(t["queued"] <= t["scheduled"] <= t["first_token"] <= t["finished"] for t in times)
    assert now <= times[0]["queued"] and times[-1]["finished"] <= time.monotonic()


def test_step_is_schedule_execute_update(make_args):
    core = EngineCore(make_args([["a", "b"]]))
    core.add_request(request(0, [5, 6]))
    got = run(core)
    assert len(tokens(got["r0"])) == 3 and got["r0"][-1].finish_reason == "stop"
    assert core.stats().steps == 3 and core.stats().generation_tokens == 3


def test_en_08_phases_add_up_to_the_start(make_args):
    core = EngineCore(make_args(script={"load_seconds": 0.2}), earlier_phases={"process": 0.1})
    info = core.info
    assert info.start_seconds >= 0.3
    assert sum(info.phases.values()) == pytest.approx(info.start_seconds, rel=0.1)
    assert {"process", "import", "script", "allocate KV"} <= set(info.phases)


def test_kv_20_two_engines_get_the_same_pool(make_args):
    sizes = [EngineCore(make_args(kv_cache_memory_bytes=77 * scripted.BYTES_PER_BLOCK + 5)).info.num_blocks for _ in range(2)]
    assert sizes == [[77], [77]]


def test_a_request_that_can_never_fit_is_refused_at_once(make_args):
    core = EngineCore(make_args(num_gpu_blocks_override=4))
    core.add_request(request(0, [5] * 60, max_tokens=30))
    core.add_request(request(1, [5] * 20, max_tokens=4, ignore_eos=True))
    first = {output.request_id: output for output in core.step().outputs}
    assert first["r0"].finish_reason == "error" and "64 tokens" in first["r0"].error
    assert len(tokens([first["r1"], *run(core)["r1"]])) == 4


def test_a_failing_request_says_why_and_leaves_the_others(make_args):
    core = EngineCore(make_args(script={"fail_request_at": 3}))
    core.add_request(request(0, [5], ignore_eos=True))
    core.add_request(request(1, [5], ignore_eos=True, max_tokens=2))
    got = run(core)
    assert len(tokens(got["r0"])) == 3 and (got["r0"][-1].finish_reason, got["r0"][-1].error) == ("error", "the script says so")
    assert len(tokens(got["r1"])) == 2 and got["r1"][-1].finish_reason == "length"


def test_runner_cls_must_name_a_class():
    for path in ("nowhere:Runner", "octavo.engine.core:Nothing", "octavo", "", "os:path"):
        with pytest.raises(InvalidRequestError, match="runner_cls"):
            load_runner_class(path)


@pytest.mark.parametrize("field", ["kv_cache_memory_bytes", "num_gpu_blocks_override"])
def test_a_pool_beyond_the_memory_is_told_under_the_setting_that_asked_for_it(make_args, monkeypatch, field):
    def allocate(self, num_blocks):
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(scripted.ScriptedRunner, "allocate_kv", allocate)
    nbytes = 100 * scripted.BYTES_PER_BLOCK
    size = {"kv_cache_memory_bytes": nbytes, "num_gpu_blocks_override": 100}[field]
    with pytest.raises(InvalidRequestError, match=f"{field} = {size}: .* {nbytes:,} bytes") as error:
        EngineCore(make_args(**({"num_gpu_blocks_override": None} | {field: size})))
    assert error.value.field == field


@pytest.mark.parametrize("tokens_per_step", [1, 3])
def test_api_30_min_tokens_and_ignore_eos_know_every_eos(make_args, tokens_per_step):
    script = {"outputs": [[5, 5, 7, 5, 0, 5, 5, 5, 5, 5, 5, 7]], "eos_token_ids": [0, 7], "tokens_per_step": tokens_per_step}
    core = EngineCore(make_args(script=script))
    core.add_request(request(0, [5], max_tokens=50, min_tokens=10))
    core.add_request(request(1, [5], max_tokens=50, ignore_eos=True))
    core.add_request(request(2, [5], max_tokens=50))
    got = run(core)
    assert len(tokens(got["r0"])) == 12 and got["r0"][-1].finish_reason == "stop"
    assert len(tokens(got["r1"])) == 50 and got["r1"][-1].finish_reason == "length"
    assert tokens(got["r2"]) == [5, 5, 7]


def test_api_30_min_tokens_with_a_sampler_that_wants_to_stop(make_args):
    args = make_args(script=SCRIPT, runner_cls=scripted.RANDOM)
    core = EngineCore(args)
    bias = {0: 100.0, 7: 99.0}
    core.add_request(request(0, [5], max_tokens=50, min_tokens=10, logit_bias=bias))
    core.add_request(request(1, [5], max_tokens=50, ignore_eos=True, logit_bias=bias))
    got = run(core)
    assert len(tokens(got["r0"])) == 11 and not {0, 7} & set(tokens(got["r0"])[:-1])
    assert len(tokens(got["r1"])) == 50


def test_api_30_the_tokenizers_ends_count_as_the_models_do(make_args):
    core = EngineCore(make_args(script=SCRIPT, runner_cls=scripted.RANDOM))
    for number, changes in enumerate([{}, {"min_tokens": 10}, {"ignore_eos": True}]):
        asked = request(number, [5], max_tokens=50, logit_bias={9: 100.0, 0: 80.0}, **changes)
        asked.eos_token_ids = [9]
        core.add_request(asked)
    got = run(core)
    assert tokens(got["r0"]) == [9] and (got["r0"][-1].finish_reason, got["r0"][-1].stop_reason) == ("stop", None)
    assert len(tokens(got["r1"])) == 11 and not {0, 9} & set(tokens(got["r1"])[:-1])
    assert tokens(got["r2"]) == [9] * 50


params_strategy = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.8, 1.4]),
        "top_k": st.sampled_from([0, 8]),
        "top_p": st.sampled_from([1.0, 0.9]),
        "presence_penalty": st.sampled_from([0.0, 1.0]),
        "frequency_penalty": st.sampled_from([0.0, 0.7]),
        "repetition_penalty": st.sampled_from([1.0, 1.5]),
        "min_tokens": st.sampled_from([0, 5]),
        "stop_token_ids": st.sampled_from([[], [3, 4]]),
        "bad_words_token_ids": st.sampled_from([[], [[5], [6, 2]]]),
        "ignore_eos": st.booleans(),
        "logprobs": st.sampled_from([None, 2]),
    }
)
prompts_strategy = st.lists(st.lists(st.integers(1, 39), min_size=1, max_size=40), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(prompts_strategy, st.data(), st.sampled_from([3, 16, 64]), st.sampled_from([8, 12, 100]))
def test_one_step_late_gives_the_same_outputs(random_args, prompts, data, budget, blocks):
    """Also under preemption (small pools), chunked prefill and prefix hits."""
    params = [data.draw(params_strategy) for _ in prompts]
    args = dataclasses.replace(random_args, max_num_batched_tokens=budget, num_gpu_blocks_override=blocks, max_num_seqs=4)
    summaries = []
    for lag in (0, 1):
        core = EngineCore(args, lag=lag)
        for number, prompt in enumerate(prompts):
            core.add_request(request(number, prompt, **params[number]))
        summaries.append(summary(run(core)))
    assert summaries[0] == summaries[1]
    alone = EngineCore(dataclasses.replace(args, max_num_batched_tokens=64))
    alone.add_request(request(0, prompts[0], **params[0]))
    assert summary(run(alone))["r0"] == summaries[0]["r0"]


@pytest.fixture(scope="module")
def random_args(tmp_path_factory) -> EngineArgs:
    from support.toy_tokenizer import write_model

    model = write_model(tmp_path_factory.mktemp("random") / "model", scripted.Script(**SCRIPT))
    return EngineArgs(model=model, runner_cls=scripted.RANDOM, max_model_len=128)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 39), min_size=1, max_size=20), params_strategy)
def test_resume_at_every_output_index_equals_the_uninterrupted_run(random_args, prompt, params):
    core = EngineCore(dataclasses.replace(random_args, num_gpu_blocks_override=64))
    core.add_request(request(3, prompt, **params))
    whole = run(core)["r3"]
    ids, ends = tokens(whole), (whole[-1].finish_reason, whole[-1].stop_reason)
    logprobs = [entry.logprobs for o in whole for entry in o.new_logprobs or ()]
    for at in range(len(ids)):
        core.add_request(request(3, prompt, ids[:at], **params))
        rest = run(core)["r3"]
        assert tokens(rest) == ids[at:] and (rest[-1].finish_reason, rest[-1].stop_reason) == ends
        assert [entry.logprobs for o in rest for entry in o.new_logprobs or ()] == logprobs[at:]


def test_lt_04_high_priority_goes_first_and_the_low_one_resumes_exactly(random_args):
    args = dataclasses.replace(random_args, max_num_seqs=1, scheduling_policy="priority")
    low = request(0, [5, 6], max_tokens=60, ignore_eos=True, priority=5)
    alone = EngineCore(args)
    alone.add_request(low)
    expected = tokens(run(alone)["r0"])
    core = EngineCore(args)
    core.add_request(low)
    got = [o for _ in range(5) for o in core.step().outputs]
    core.add_request(request(1, [8], max_tokens=5, ignore_eos=True, priority=0))
    ends = []
    while core.has_unfinished_requests:
        for output in core.step().outputs:
            got.append(output)
            if output.finish_reason:
                ends.append(output.request_id)
    assert ends == ["r1", "r0"]
    assert tokens([o for o in got if o.request_id == "r0"]) == expected


def test_kv_06_three_hundred_aborts_leave_nothing_behind(random_args):
    """In every state: waiting, in prefill, decoding."""
    args = dataclasses.replace(random_args, num_gpu_blocks_override=32, max_num_batched_tokens=16, max_num_seqs=8)
    core = EngineCore(args)
    for number in range(300):
        core.add_request(request(number, [1 + number % 39] * (1 + number % 50), ignore_eos=True))
        for _ in range(number % 4):
            core.step()
        core.abort([f"r{number - 2}", "unknown"])
        if number % 25 == 0:
            core.check_integrity()
    core.abort([f"r{number}" for number in range(300)])
    core.check_integrity()
    assert not core.has_unfinished_requests
    (group,) = core.kv_usage()["groups"]
    assert group["slots"]["held"] == 0 and group["slots"]["cached"] + group["slots"]["free"] == 32 * 16
    core.add_request(request(1000, [5], max_tokens=3, ignore_eos=True))
    assert len(tokens(run(core)["r1000"])) == 3


def test_kv_09_kv_10_a_repeated_prompt_reuses_whole_blocks_but_its_last_token(random_args):
    for length in (15, 16, 17, 32, 33):
        core = EngineCore(random_args)
        answers = []
        for number in range(3):
            core.add_request(request(number, [9] * length, seed=1, logprobs=2))
            got = run(core)[f"r{number}"]
            answers.append(summary({"r": got}))
            assert got[-1].num_cached_tokens == (0 if number == 0 else (length - 1) // 16 * 16)
        assert answers[0] == answers[1] == answers[2]


def test_prompt_logprobs_come_once_over_chunks_and_preemption(random_args):
    args = dataclasses.replace(random_args, max_num_batched_tokens=7, num_gpu_blocks_override=6, max_num_seqs=3)
    core = EngineCore(args)
    prompts = [[n + 1] * 30 for n in range(3)]
    for number, prompt in enumerate(prompts):
        core.add_request(request(number, prompt, prompt_logprobs=0, max_tokens=30, ignore_eos=True))
    got = run(core)
    assert core.stats().preemptions > 0
    for number, prompt in enumerate(prompts):
        scored = [entry.token_ids[0] for o in got[f"r{number}"] for entry in o.new_prompt_logprobs or ()]
        assert scored == prompt[1:]
