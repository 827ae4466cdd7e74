"""The scheduler's rules, one by one, against the simulated runner."""

from __future__ import annotations

import pytest

from octavo.errors import InvalidRequestError
from octavo.outputs import TokenLogprobs
from octavo.scheduler.output import RunnerOutput
from support.simulation import EOS, Simulation, script


def counts(sim: Simulation) -> list[dict[str, int]]:
    return [scheduled.num_scheduled_tokens for scheduled in sim.scheduled]


def test_a_prompt_runs_in_chunks_and_then_decodes() -> None:
    sim = Simulation(max_num_batched_tokens=8)
    sim.add("a", 20, max_tokens=3)
    sim.run()
    assert counts(sim) == [{"a": 8}, {"a": 8}, {"a": 4}, {"a": 1}, {"a": 1}]
    sim.check_output("a")
    sim.check_idle()


def test_decodes_go_on_beside_a_long_prefill() -> None:
    sim = Simulation(max_num_batched_tokens=8)
    sim.add("victim", 4, max_tokens=12)
    sim.step()
    sim.add("attacker", 60, max_tokens=2)
    sim.run()
    during = [step for step in counts(sim) if "attacker" in step and step["attacker"] > 1]
    assert all(step == {"victim": 1, "attacker": 7} for step in during[:-1])
    assert len(during) == 9  # ceil(60 / 7)


def test_the_running_come_before_the_waiting_and_first_come_is_first_served() -> None:
    sim = Simulation(max_num_batched_tokens=10, max_num_seqs=2)
    for name in "abc":
        sim.add(name, 6, max_tokens=2)
    sim.step()
    assert counts(sim)[0] == {"a": 6, "b": 4}
    sim.step()
    assert counts(sim)[1] == {"a": 1, "b": 2}
    sim.step()  # a has ended, b decodes: c has a seat
    assert counts(sim)[2] == {"b": 1, "c": 6}


def test_without_chunks_a_prompt_is_whole_or_waits() -> None:
    sim = Simulation(max_num_batched_tokens=32, max_model_len=32, enable_chunked_prefill=False)
    for name, length in (("a", 20), ("b", 13), ("c", 2)):
        sim.add(name, length, max_tokens=4)
    sim.run()
    assert counts(sim)[0] == {"a": 20}  # b does not fit behind it, and c does not pass b
    assert counts(sim)[1] == {"a": 1, "b": 13, "c": 2}
    for name in "abc":
        sim.check_output(name)


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_several_tokens_a_step(lag: int) -> None:
    sim = Simulation(max_drafts=4, lag=lag)
    for i in range(5):
        sim.add(f"r{i}", 3 + 5 * i, max_tokens=10 + i)
    sim.run()
    for i in range(5):
        sim.check_output(f"r{i}")
    sim.check_idle()


@pytest.mark.parametrize("lag", [0, 1])
def test_stop_ids_end_a_request_and_min_tokens_holds_them_off(lag: int) -> None:
    sim = Simulation(lag=lag, max_drafts=3)
    prompt = [5, 6, 7]
    tokens = list(prompt)
    for _ in range(20):
        tokens.append(script(tokens))
    stop = tokens[8]
    sim.add("plain", prompt, max_tokens=20, stop_token_ids=[stop])
    sim.add("late", prompt, max_tokens=20, stop_token_ids=[stop], min_tokens=tokens[3:].index(stop) + 2)
    sim.add("eos", prompt, max_tokens=20, ignore_eos=False, stop_token_ids=[])
    sim.run()
    for name in ("plain", "late", "eos"):
        sim.check_output(name)
    assert sim.last("plain").stop_reason == stop
    assert len(sim.tokens("late")) > len(sim.tokens("plain"))


def test_the_models_own_end_is_no_stop_reason() -> None:
    sim = Simulation()
    prompt = next([n] for n in range(2, 50) if EOS in _continue([n], 12))
    sim.add("a", prompt, max_tokens=12, ignore_eos=False)
    sim.add("b", prompt, max_tokens=12, ignore_eos=True, stop_token_ids=[EOS])
    sim.run()
    assert (sim.last("a").finish_reason, sim.last("a").stop_reason) == ("stop", None)
    assert (sim.last("b").finish_reason, sim.last("b").stop_reason) == ("stop", EOS)


def _continue(tokens: list[int], count: int) -> list[int]:
    tokens = list(tokens)
    for _ in range(count):
        tokens.append(script(tokens))
    return tokens[-count:]


def test_max_model_len_ends_with_length() -> None:
    sim = Simulation(max_model_len=24)
    sim.add("a", 20, max_tokens=100)
    sim.run()
    assert len(sim.tokens("a")) == 4
    assert sim.last("a").finish_reason == "length"


@pytest.mark.parametrize("lag", [0, 1])
def test_the_last_token_is_never_computed(lag: int) -> None:
    sim = Simulation(lag=lag, prefix_index="none")
    sim.add("a", 10, max_tokens=6)
    sim.run()
    assert sim.runner.computed_tokens == 10 + 6 - 1


@pytest.mark.parametrize("lag", [0, 1])
def test_resume_at_every_output_index(lag: int) -> None:
    whole = Simulation()
    whole.add("a", 17, max_tokens=9, min_tokens=3, stop_token_ids=[script([1])])
    whole.run()
    output = whole.tokens("a")
    for done in range(len(output)):
        sim = Simulation(lag=lag)
        sim.add("a", 17, max_tokens=9, min_tokens=3, stop_token_ids=[script([1])], output_token_ids=output[:done])
        sim.run()
        assert output[:done] + sim.tokens("a") == output
        assert sim.last("a").finish_reason == whole.last("a").finish_reason


def test_a_request_with_nothing_left_to_generate_is_refused() -> None:
    sim = Simulation()
    with pytest.raises(InvalidRequestError, match="nothing is left to generate"):
        sim.add("a", 5, max_tokens=2, output_token_ids=[1, 2])
    with pytest.raises(InvalidRequestError, match="prompt") as error:
        sim.add("b", [], max_tokens=2)
    assert error.value.field == "prompt"
    with pytest.raises(InvalidRequestError, match="256 tokens"):
        sim.add("c", 256)
    sim.add("d", 5)
    with pytest.raises(InvalidRequestError, match="in use"):
        sim.add("d", 5)


@pytest.mark.parametrize("lag", [0, 1])
def test_one_request_fails_and_the_others_stand(lag: int) -> None:
    sim = Simulation(lag=lag)
    for name in ("a", "b", "c"):
        sim.add(name, 12, max_tokens=6)
    sim.step()
    sim.runner.fail.add("b")
    sim.run()
    sim.check_output("a")
    sim.check_output("c")
    assert (sim.last("b").finish_reason, sim.last("b").error) == ("error", "it broke")
    sim.check_idle()


def test_a_runner_that_returns_no_token_fails_that_request_and_does_not_hang() -> None:
    sim = Simulation()
    sim.add("a", 4)
    scheduled = sim.scheduler.schedule()
    (output,) = sim.scheduler.update_from_output(scheduled, RunnerOutput(scheduled.step_id))
    assert output.finish_reason == "error" and "returned 0 tokens" in (output.error or "")
    assert not sim.scheduler.has_work()


def test_a_step_out_of_turn_is_refused() -> None:
    sim = Simulation()
    sim.add("a", 4)
    first, second = sim.scheduler.schedule(), sim.scheduler.schedule()
    with pytest.raises(ValueError, match="step 1 is next"):
        sim.scheduler.update_from_output(second, RunnerOutput(second.step_id))
    sim.scheduler.update_from_output(first, RunnerOutput(first.step_id, sampled={"a": [1]}))


@pytest.mark.parametrize("lag", [0, 1])
def test_kv_06_aborts_in_every_state_give_all_blocks_back(lag: int) -> None:
    sim = Simulation(num_blocks=40, max_num_seqs=4, lag=lag, prefix_index="none")
    names = [f"r{i}" for i in range(300)]
    for i, name in enumerate(names):
        sim.add(name, 1 + 37 * i % 70, max_tokens=20)
    for i, name in enumerate(names):
        if i % 3:
            sim.step()  # so that it may be queued, in prefill, decoding, preempted, or ended
        sim.scheduler.abort([name, "never was"])
        sim.scheduler.check_integrity()
    assert not sim.scheduler.has_work()
    sim.drain()
    sim.check_idle()
    assert sim.kv.usage().groups[0].free == 40 * 8
    sim.step()
    assert not sim.runner.rows


def test_a_request_id_can_be_used_again_while_its_last_step_is_in_flight() -> None:
    sim = Simulation(lag=1)
    sim.add("a", 5, max_tokens=9)
    sim.step()
    sim.step()
    sim.scheduler.abort(["a"])
    sim.add("a", 6, max_tokens=4)
    sim.run()
    sim.check_output("a")


def test_an_aborted_request_yields_nothing_from_steps_in_flight() -> None:
    sim = Simulation(lag=1)
    sim.add("a", 5, max_tokens=9)
    sim.step()
    sim.scheduler.abort(["a"])
    assert sim.step() == []
    sim.drain()
    sim.check_idle()


def test_kv_01_a_prompt_bigger_than_the_pool_is_refused_at_once() -> None:
    sim = Simulation(num_blocks=49, block_size=16, max_model_len=2048, max_num_batched_tokens=512)
    with pytest.raises(InvalidRequestError, match=r"prompt: it has 1000 tokens, and the whole KV pool holds 784 tokens") as error:
        sim.add("big", 1000, max_tokens=10)
    assert error.value.field == "prompt"
    sim.add("short", 10, max_tokens=4)
    sim.add("edge", 784, max_tokens=1)
    with pytest.raises(InvalidRequestError, match="785 tokens"):
        sim.add("over", 785, max_tokens=1)
    sim.run(most_steps=20)
    sim.check_output("short")
    sim.check_output("edge")


def test_kv_02_prompt_and_output_bigger_than_the_pool_are_refused() -> None:
    sim = Simulation(num_blocks=63, block_size=16, max_model_len=2048, max_num_batched_tokens=512)
    with pytest.raises(InvalidRequestError, match=r"max_tokens = 24: .* 1023 tokens are stored, and the whole KV pool holds 1008") as error:
        sim.add("a", 1000, max_tokens=24)
    assert error.value.field == "max_tokens"
    sim.add("b", 1000, max_tokens=9)  # 1008 are stored: the last is not
    sim.run(most_steps=20)
    sim.check_output("b")


def test_kv_08_one_request_with_a_huge_limit_gets_a_clear_error() -> None:
    sim = Simulation(num_blocks=8, block_size=16, max_model_len=2048)
    with pytest.raises(InvalidRequestError, match="the whole KV pool holds 128 tokens"):
        sim.add("a", 20, max_tokens=10**6)
    sim.add("b", 20, max_tokens=109)
    sim.run()
    sim.check_output("b")


def test_kv_08_a_placement_that_refuses_fails_the_request_and_never_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = Simulation()
    sim.add("a", 7, max_tokens=20)
    sim.step()
    monkeypatch.setattr(sim.kv.pools[0].placement, "allocate", lambda owner, count, reserve: None)
    sim.run(most_steps=10)
    assert sim.last("a").finish_reason == "error" and "KV pool refused" in (sim.last("a").error or "")
    sim.check_idle()


def test_an_exception_in_a_policy_takes_back_the_whole_step(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = Simulation()
    sim.add("a", 7, max_tokens=20)
    sim.step()
    for name in "bcd":
        sim.add(name, 12, max_tokens=5)
    placement = sim.kv.pools[0].placement
    allocate, calls, before = placement.allocate, [], sim.kv.usage()

    def allocate_twice(owner: str, count: int, reserve: int) -> object:
        calls.append(owner)
        if len(calls) > 2:
            raise RuntimeError("a policy is broken")
        return allocate(owner, count, reserve)

    monkeypatch.setattr(placement, "allocate", allocate_twice)
    with pytest.raises(RuntimeError, match="broken"):
        sim.scheduler.schedule()
    monkeypatch.undo()
    assert calls == ["b", "c", "d"]
    sim.scheduler.check_integrity()
    assert sim.kv.usage() == before
    sim.run()
    for name in "abcd":
        sim.check_output(name)


def test_prompt_logprobs_are_counted_and_logprobs_trimmed_at_the_stop() -> None:
    sim = Simulation()
    request = sim.add("a", 4, max_tokens=9, stop_token_ids=[7], prompt_logprobs=0, logprobs=0)
    scheduled = sim.scheduler.schedule()
    entry = TokenLogprobs([1], [-1.0], 1)
    (output,) = sim.scheduler.update_from_output(
        scheduled,
        RunnerOutput(scheduled.step_id, sampled={"a": [3, 7, 4]}, logprobs={"a": [entry] * 3}, prompt_logprobs={"a": [entry] * 3}),
    )
    assert output.new_token_ids == [3, 7]
    assert output.new_logprobs == [entry] * 2
    assert output.new_prompt_logprobs == [entry] * 3
    assert request.num_prompt_logprobs_sent == 3


def test_the_last_message_has_the_times() -> None:
    sim = Simulation()
    sim.add("a", 4, max_tokens=2, arrival_time=999.0)
    sim.step()
    sim.now = 1001.0
    sim.step()
    assert sim.last("a").times == {"queued": 999.0, "scheduled": 1000.0, "first_token": 1000.0, "finished": 1001.0}


def test_stats() -> None:
    sim = Simulation(max_num_seqs=1, max_num_batched_tokens=64)
    sim.add("a", [1] * 16, max_tokens=2)
    sim.now = 1001.0
    sim.add("b", [1] * 16, max_tokens=2)
    sim.now = 1003.0
    sim.add("c", [1] * 16, max_tokens=2)
    sim.step()
    sim.now = 1008.0
    stats = sim.scheduler.stats()
    assert (stats.running, stats.waiting, stats.oldest_waiting_s) == (1, 2, 7.0)
    sim.run()
    stats = sim.scheduler.stats()
    assert (stats.running, stats.waiting, stats.oldest_waiting_s) == (0, 0, 0.0)
    assert (stats.prompt_tokens, stats.generation_tokens, stats.preemptions, stats.recomputed_tokens) == (48, 6, 0, 0)
    assert (stats.prefix_queries, stats.prefix_hits) == (48, 16)
    assert stats.steps == len(sim.scheduled)
    assert stats.kv["groups"][0]["slots"]["held"] == 0
