"""LLM, the synchronous API, over scripted models."""

from __future__ import annotations

import logging

import pytest

from octavo import LLM, RequestOutput, SamplingParams
from octavo.engine.arguments import engine_args
from octavo.errors import InvalidRequestError
from support import scripted


@pytest.fixture
def make_llm(make_args):
    """LLM of a scripted model, closed at the end."""
    made = []

    def make(*args, **kwargs) -> LLM:
        settings = make_args(*args, **kwargs)
        names = ("runner_cls", "max_model_len", "num_gpu_blocks_override", "scheduling_policy", "max_num_seqs", "seed")
        made.append(LLM(settings.model, **{name: getattr(settings, name) for name in names if getattr(settings, name) is not None}))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


def test_generate_answers_in_order(make_llm):
    llm = make_llm([["ABC", "DEF"], ["x"]])
    outputs = llm.generate(["one", [100], {"prompt": "three"}], [SamplingParams(seed=s) for s in (0, 1, 2)])
    assert [o.outputs[0].text for o in outputs] == ["ABCDEF", "x", "ABCDEF"]
    assert [o.prompt for o in outputs] == ["one", None, "three"]
    assert all(isinstance(o, RequestOutput) and o.finished and o.outputs[0].finish_reason == "stop" for o in outputs)
    assert outputs[0].metrics["arrival"] <= outputs[0].metrics["first_token"] <= outputs[0].metrics["finished"]


def test_one_prompt_needs_no_list(make_llm):
    llm = make_llm([["ABC"]])
    for prompt in ("hi", [100, 101], {"prompt_token_ids": [100, 101]}):
        (output,) = llm.generate(prompt)
        assert output.outputs[0].text == "ABC"


def test_api_01_and_02_a_stop_string(make_llm):
    llm = make_llm([["ABC", "DEF", "G", "HI", "J"]])
    (output,) = llm.generate("x", SamplingParams(stop="DEFGHIJ", logprobs=1))
    (completion,) = output.outputs
    assert (completion.text, completion.finish_reason, completion.stop_reason) == ("ABC", "stop", "DEFGHIJ")
    assert len(completion.token_ids) == len(completion.logprobs) == 1
    assert llm.kv_usage()["groups"][0]["slots"]["held"] == 0


def test_api_04_a_special_token_as_stop_string(make_llm):
    llm = make_llm(script={"outputs": [[100, 101, 2, 102]]})
    (output,) = llm.generate("x", SamplingParams(stop=["<|im_end|>"], ignore_eos=True))
    assert (output.outputs[0].text, output.outputs[0].stop_reason) == ("ab", "<|im_end|>")


def test_api_24_n_completions(make_llm):
    llm = make_llm([["a"], ["b", "b"], ["c", "c", "c", "c"]])
    for _ in range(2):
        (output,) = llm.generate("x", SamplingParams(n=3, seed=0, max_tokens=3))
        assert [c.text for c in output.outputs] == ["a", "bb", "ccc"]
        assert [c.index for c in output.outputs] == [0, 1, 2]
        assert [c.finish_reason for c in output.outputs] == ["stop", "stop", "length"]


def test_api_24_sampled_completions_differ_and_repeat(make_llm):
    llm = make_llm(script={"vocab_size": 200}, runner_cls=scripted.RANDOM)
    params = SamplingParams(n=3, seed=1, temperature=1.0, ignore_eos=True)
    runs = [[c.token_ids for c in llm.generate("x", params)[0].outputs] for _ in range(2)]
    assert runs[0] == runs[1] and len({tuple(ids) for ids in runs[0]}) == 3


def test_api_22_a_seeded_request_beside_an_unseeded_one(make_llm):
    llm = make_llm(script={"vocab_size": 200}, runner_cls=scripted.RANDOM)
    seeded = SamplingParams(seed=42, ignore_eos=True)
    rounds = [llm.generate(["a", "b"], [seeded, SamplingParams(ignore_eos=True)]) for _ in range(4)]
    assert len({tuple(outputs[0].outputs[0].token_ids) for outputs in rounds}) == 1
    assert len({tuple(outputs[1].outputs[0].token_ids) for outputs in rounds}) == 4


def test_an_engines_seed_makes_unseeded_requests_repeatable(make_llm):
    texts = []
    for _ in range(2):
        llm = make_llm(script={"vocab_size": 200}, runner_cls=scripted.RANDOM, seed=5)
        texts.append([llm.generate("x", SamplingParams(ignore_eos=True))[0].outputs[0].token_ids for _ in range(2)])
    assert texts[0] == texts[1] and texts[0][0] != texts[0][1]


def test_chat_uses_the_models_template(make_llm):
    llm = make_llm([["ABC"]])
    (output,) = llm.chat([{"role": "user", "content": "hi"}])
    assert output.prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n" and output.outputs[0].text == "ABC"
    assert len(llm.chat([[{"role": "user", "content": "hi"}]] * 2)) == 2


def test_nothing_runs_if_one_prompt_is_invalid(make_llm):
    llm = make_llm([["ABC"]])
    with pytest.raises(InvalidRequestError, match="empty"):
        llm.generate(["fine", ""])
    with pytest.raises(InvalidRequestError, match="sampling_params: 1 for 2"):
        llm.generate(["a", "b"], [SamplingParams()])
    assert llm.generate("fine")[0].outputs[0].text == "ABC"


def test_a_failed_completion_is_told_from_the_others(make_llm):
    llm = make_llm(script={"fail_request_at": 2})
    outputs = llm.generate(["a", "b"], [SamplingParams(ignore_eos=True), SamplingParams(ignore_eos=True, max_tokens=1)])
    assert (outputs[0].outputs[0].finish_reason, outputs[0].outputs[0].stop_reason) == ("error", "the script says so")
    assert outputs[1].outputs[0].finish_reason == "length"


def test_interrupting_generate_leaves_nothing_running(make_llm, monkeypatch):
    llm = make_llm([["ABC"] * 50])
    from octavo.engine.client import InProcessClient

    steps = iter([None] * 3)
    step = InProcessClient.step

    def interrupted(self):
        if next(steps, "stop") == "stop":
            raise KeyboardInterrupt
        return step(self)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(InProcessClient, "step", interrupted)
        llm.generate("x", SamplingParams(max_tokens=40))
    assert llm.kv_usage()["groups"][0]["slots"]["held"] == 0
    assert len(llm.generate("x", SamplingParams(max_tokens=4))[0].outputs[0].token_ids) == 4


def test_tensor_parallel_size_2_is_a_clear_error():
    with pytest.raises(InvalidRequestError, match="tensor_parallel_size = 2: this build runs on one device"):
        LLM("smollm2", tensor_parallel_size=2)


@pytest.mark.parametrize("name", ["enable_lora", "skip_tokenizer_init"])
def test_arguments_that_would_change_the_result_are_refused(name):
    with pytest.raises(InvalidRequestError, match=name):
        engine_args("m", {name: True})
    assert engine_args("m", {name: False}).model == "m"


@pytest.mark.parametrize(("name", "value"), [("swap_space", 4), ("trust_remote_code", True), ("compilation_config", 3)])
def test_arguments_without_effect_are_warned_about(name, value, caplog):
    with caplog.at_level(logging.WARNING):
        engine_args("m", {name: value})
    assert name in caplog.text


def test_swap_space_has_an_effect_under_swap(caplog):
    assert engine_args("m", {"preemption_mode": "swap", "swap_space": 0.5}).swap_space == 0.5
    assert not caplog.records


def test_an_argument_nobody_has_is_a_type_error():
    with pytest.raises(TypeError, match="max_model_length"):
        engine_args("m", {"max_model_length": 3})


def test_start_up_reports_the_pool_and_the_phases(make_llm, caplog):
    with caplog.at_level(logging.INFO):
        make_llm(num_gpu_blocks_override=128)
    assert "2,048 tokens" in caplog.text and f"{128 * scripted.BYTES_PER_BLOCK:,} bytes" in caplog.text
    assert "allocate KV" in caplog.text


def test_a_long_call_shows_a_progress_bar(monkeypatch):
    import io

    from rich.console import Console

    from octavo.engine import progress

    screen = io.StringIO()
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=100))
    with progress.ProgressBar(3, True) as bar:
        bar.advance(1, 10)
        bar.advance(2, 20)
    assert "3/3" in screen.getvalue() and "tok/s" in screen.getvalue()
    screen.truncate(0)
    with progress.ProgressBar(3, False) as bar:
        bar.advance(3, 10)
    assert "3/3" not in screen.getvalue()
