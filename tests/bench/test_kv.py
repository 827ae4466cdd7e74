"""``octavo bench kv``: what counts and when, by hand; that every trial gets the same load, and that nobody knows where a request ends."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.kv import plan
from octavo.bench.kv.experiment import Experiment, TrialResult, engine_request
from octavo.bench.kv.measure import PARTS, StepSample, Window, efficiency_meanwhile, find_window, mean_length, measure, shares
from octavo.bench.kv.plan import Trial
from octavo.bench.kv.result import as_json, same_outputs
from octavo.bench.kv.runners import EndingRunner, StepCost, fit_step_cost
from octavo.bench.workload.file import load_workload, parse_workload
from octavo.bench.workload.requests import Workload
from octavo.bench.workload.tokens import Tokens
from octavo.config import EngineArgs
from octavo.errors import InvalidRequestError
from octavo.kv.admission.predicted import PredictedAdmission
from octavo.scheduler.output import RunnerOutput, SchedulerOutput

EXAMPLES = Path(__file__).parents[2] / "examples" / "workloads"
LOAD = {
    "name": "small",
    "seed": 3,
    "num_requests": 60,
    "arrivals": {"process": "poisson", "rate": 500},
    "tenants": [{"name": "a"}, {"name": "b"}],
    "requests": [
        {
            "name": "chat",
            "prompt_tokens": {"distribution": "uniform", "low": 4, "high": 60},
            "output_tokens": {"distribution": "lognormal", "median": 20, "sigma": 0.6, "low": 1, "high": 100},
            "max_tokens": {"distribution": "choice", "values": [64, 128]},
        },
        {
            "name": "rag",
            "shared_prefix": {"tokens": 64},
            "prompt_tokens": 16,
            "output_tokens": {"distribution": "uniform", "low": 8, "high": 40},
            "max_tokens": 112,
        },
    ],
}


@pytest.fixture
def workload() -> Workload:
    return parse_workload(LOAD, "load")


def simulation(workload: Workload, **settings: Any) -> Experiment:
    return Experiment(EngineArgs(**settings), workload, plan.pool_tokens(None, workload), StepCost())


def sample(start: float, seconds: float, **values: Any) -> StepSample:
    parts = dict.fromkeys(PARTS, 0.0) | {name: values.pop(name) for name in PARTS if name in values}
    nothing = {"running": 1, "context_tokens": 0, "fragmentation": 0.0, "held_meanwhile": 0.0, "live_meanwhile": 0.0}
    nothing |= {"started_full": False, "output_tokens": 0, "ended": 0, "preemptions": 0}
    return StepSample(start=start, seconds=seconds, parts=parts, **(nothing | values))


# What counts, and when


def test_measures_are_averages_over_time_by_hand() -> None:
    samples = [
        sample(0, 9, held=1, live=1),  # before the window
        sample(9, 1, held=0.8, live=0.4, tail=0.1, reserved=0.3, external=0.2, running=2, context_tokens=200, output_tokens=2),
        sample(10, 3, held=0.4, live=0.4, fragmentation=0.5, running=6, context_tokens=300, output_tokens=6, preemptions=1, free=0.6),
    ]
    window = Window(1, 2, True)
    measures = measure(samples, window)
    assert measures.live_of_total == pytest.approx(0.4)
    assert measures.kv_efficiency == pytest.approx((0.4 * 1 + 0.4 * 3) / (0.8 * 1 + 0.4 * 3))
    assert measures.waste == pytest.approx({"tail": 0.1 / 4, "reserved": 0.3 / 4, "stale": 0.0, "external": 0.2 / 4})
    assert measures.fragmentation == pytest.approx(0.5 * 3 / 4)
    assert measures.concurrent == pytest.approx((2 + 18) / 4)
    assert measures.output_tok_s == pytest.approx(8 / 4)
    assert measures.preemptions == 1
    assert mean_length(samples, window) == pytest.approx((200 * 1 + 300 * 3) / (2 * 1 + 6 * 3))


def test_while_a_step_runs_its_tokens_are_not_live() -> None:
    samples = [sample(0, 1, held_meanwhile=0.5, live_meanwhile=0.4), sample(1, 1, held_meanwhile=0.5, live_meanwhile=0.5)]
    assert efficiency_meanwhile(samples, Window(0, 1, True)) == pytest.approx(0.9)


def test_the_window_is_the_full_pool_after_one_turnover() -> None:
    steps = [
        {"ended": 1},  # before the pool is full: an end counts, the step does not
        {"running": 3, "started_full": True},
        {"running": 3, "started_full": True, "ended": 1},
        {"running": 3, "ended": 1},  # the third end: as many as ran when it was first full
        {"running": 3},  # first that counts, though the head does not wait here
        {"running": 3, "started_full": True, "ended": 2},  # last
        {"running": 1, "ended": 1},
    ]
    assert find_window([sample(i, 1, **step) for i, step in enumerate(steps)]) == Window(4, 5, True)


@pytest.mark.parametrize("steps", [[{}, {}], [{"running": 2, "started_full": True}, {"ended": 1}]])
def test_without_saturation_all_counts_and_that_is_said(steps: list[dict[str, Any]]) -> None:
    assert find_window([sample(i, 1, **step) for i, step in enumerate(steps)]) == Window(0, 1, False)


def test_groups_are_weighted_by_bytes() -> None:
    """One group of 300 bytes and one of 100: held 150 + 100, free 150 + 0."""
    names = ("total", *PARTS)
    groups = [
        {"bytes": dict.fromkeys(names, 0) | {"total": 300, "held": 150, "free": 150}, "fragmentation": 0.4},
        {"bytes": dict.fromkeys(names, 0) | {"total": 100, "held": 100}, "fragmentation": 0.0},
    ]
    parts, fragmentation = shares(groups)
    assert parts["held"] == pytest.approx(250 / 400)
    assert parts["free"] == pytest.approx(150 / 400)
    assert fragmentation == pytest.approx(0.4)


def test_a_step_cost_is_found_again() -> None:
    cost = StepCost(2e-3, 3e-4, 1e-7)
    work = [(tokens, tokens * context) for tokens in (1, 8, 64, 512) for context in (10, 500, 3000)]
    found = fit_step_cost(work, [cost.fixed + cost.token * t + cost.attended * a for t, a in work])
    assert dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(cost))


# What is compared


def test_every_policy_is_tried_at_16_and_paged_at_all_sizes() -> None:
    trials = plan.plan_trials(None, None)
    assert {trial.policy for trial in trials if trial.block_size == 16} == set(plan.available_policies())
    assert {trial.block_size for trial in trials if trial.policy == "paged"} == {8, 16, 32, 64}
    assert {"static", "contiguous", "contiguous-best", "contiguous-compact", "paged", "paged-guaranteed", "paged-predicted"} <= {
        trial.policy for trial in trials
    }
    assert plan.plan_trials(["static", "paged"], [8, 32]) == [Trial(p, s) for p in ("static", "paged") for s in (8, 32)]


def test_any_choice_of_policies_can_be_tried_by_its_seams(workload: Workload) -> None:
    (trial,) = plan.plan_trials(["paged/radix/cost/predicted"], None)
    args = plan.trial_args(EngineArgs(), trial, workload, 768)
    assert args.kv_policies() == {"placement": "paged", "prefix_index": "radix", "eviction": "cost", "admission": "predicted"}
    assert simulation(workload).run(trial).measures.kv_efficiency > 0.8
    with pytest.raises(InvalidRequestError, match="kv_eviction = 'mru': choose one of lru"):
        plan.plan_trials(["paged/hash/mru/optimistic"], None)
    with pytest.raises(InvalidRequestError, match="do not go together"):
        plan.plan_trials(["static/hash/lru/guaranteed"], None)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kv_policy": "static"}, "use --policies"),
        ({"block_size": 32}, "--block-sizes"),
        ({"num_gpu_blocks_override": 9}, "--pool-tokens"),
        ({"prefix_cache_dir": "d"}, "^prefix_cache_dir = 'd': under one policy"),
    ],
)
def test_settings_that_are_varied_cannot_be_given(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        plan.check_args(EngineArgs(**settings))


def test_what_does_not_fit_is_refused(workload: Workload) -> None:
    assert workload.max_model_len == 64 + 16 + 112
    assert plan.pool_tokens(None, workload) == 4 * 192
    with pytest.raises(InvalidRequestError, match=r"pool_tokens = 191: .* may need 192 tokens; at least 192"):
        plan.pool_tokens(191, workload)
    with pytest.raises(InvalidRequestError, match=r"max_model_len = 100: .* may need 192"):
        plan.trial_args(EngineArgs(max_model_len=100), Trial("paged", 16), workload, 768)
    with pytest.raises(InvalidRequestError, match="policies = 'pagd': choose among static"):
        plan.plan_trials(["pagd"], None)
    with pytest.raises(InvalidRequestError, match="block_sizes = 24: choose among 8, 16, 32, 64"):
        plan.plan_trials(None, [24])


# The same load, and hidden ends


def test_every_trial_gets_the_same_requests_and_gives_the_same_tokens(workload: Workload) -> None:
    experiment = simulation(workload)
    results = experiment.run_all([Trial("static", 16), Trial("contiguous", 8), Trial("paged", 64)], lambda result: None)
    same, compared = same_outputs(results)
    assert same and compared > 30
    drawn = workload.draw(Tokens.of_size(results[0].info.vocab_size))
    for result in results:
        for index, token_ids in result.outputs.items():
            assert len(token_ids) == drawn[index].output_tokens


def test_a_simulation_repeats_exactly(workload: Workload) -> None:
    first, again = (simulation(workload).run(Trial("paged-predicted", 16)) for _ in range(2))
    assert first.samples == again.samples
    assert first.outputs == again.outputs


def test_other_outputs_are_noticed(workload: Workload) -> None:
    result = simulation(workload).run(Trial("paged", 16))
    index = next(iter(result.outputs))
    other: TrialResult = dataclasses.replace(result, outputs={index: (*result.outputs[index], 7)})
    assert same_outputs([result, other]) == (False, 1)


def test_the_engine_is_not_told_where_a_request_ends(workload: Workload) -> None:
    for request in workload.draw(Tokens.of_size(1000)):
        longer = dataclasses.replace(request, output_tokens=request.max_tokens)
        told = [engine_request(each, 1000, seed=0) for each in (request, longer)]
        for one in told:
            one.arrival_time = 0.0
        assert told[0] == told[1]
        assert told[0].sampling_params.max_tokens == request.max_tokens


def test_admission_hears_of_the_true_length_when_the_request_is_through(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[int, int]] = []
    learn = PredictedAdmission.finished

    def listen(self: PredictedAdmission, stated: int, generated: int) -> None:
        heard.append((stated, generated))
        learn(self, stated, generated)

    monkeypatch.setattr(PredictedAdmission, "finished", listen)
    result = simulation(workload).run(Trial("paged-predicted", 16))
    drawn = workload.draw(Tokens.of_size(result.info.vocab_size))
    assert sorted(heard) == sorted((drawn[i].max_tokens, drawn[i].output_tokens) for i in result.outputs)


def test_a_request_ends_at_its_length_however_many_tokens_a_step_brings() -> None:
    class Drafting:
        def execute(self, scheduled: SchedulerOutput) -> RunnerOutput:
            return RunnerOutput(scheduled.step_id, {"ends": [5, 6, 7], "runs on": [5]})

        num_layers = 3

    seen: list[str] = []
    runner = EndingRunner(Drafting(), {"ends": 5}, 99, lambda s: seen.append("before"), lambda s: seen.append("after"))
    assert runner.execute(SchedulerOutput(1)).sampled == {"ends": [5, 6, 7], "runs on": [5]}
    assert runner.execute(SchedulerOutput(2)).sampled == {"ends": [5, 99], "runs on": [5]}
    assert seen == ["before", "after"] * 2
    assert runner.num_layers == 3  # all else is the runner's own


def test_a_closed_loop_keeps_its_clients_busy(workload: Workload) -> None:
    tables = LOAD | {"arrivals": {"process": "closed", "concurrency": 3}}
    result = simulation(parse_workload(tables, "load")).run(Trial("paged", 16))
    assert max(s.running for s in result.samples) <= 3
    assert len(result.outputs) == 60  # never full, so it runs to the end
    assert not result.window.saturated


@pytest.mark.parametrize(("name", "block_size", "length", "least"), [("chat", 16, 200, 0.96), ("chat_short", 8, 64, 0.90)])
def test_paging_wastes_the_tail_of_a_block_a_request_and_no_more(name: str, block_size: int, length: int, least: float) -> None:
    """A request's last block has (block_size - 1) / 2 slots unfilled on average, whatever its length."""
    workload = load_workload(EXAMPLES / f"{name}.toml")
    result = simulation(workload).run(Trial("paged", block_size))
    efficiency = result.measures.kv_efficiency
    assert result.mean_length == pytest.approx(length, rel=0.05)
    assert efficiency == pytest.approx(result.mean_length / (result.mean_length + (block_size - 1) / 2), abs=0.005)
    assert efficiency >= least


# The result


def test_the_json_has_what_it_should_and_adds_up(workload: Workload) -> None:
    experiment = simulation(workload)
    results = [experiment.run(trial) for trial in plan.plan_trials(None, None)]
    result = as_json(experiment, results)
    keys = {"policy", "block_size", "kv_efficiency", "live_of_total", "waste"}
    keys |= {"fragmentation", "concurrent", "output_tok_s", "preemptions"}
    for run, window in zip(result["runs"], result["meta"]["windows"], strict=True):
        assert set(run) == keys
        waste = run["waste"]
        assert set(waste) == {"tail", "reserved", "stale", "external"}
        held = run["live_of_total"] + waste["tail"] + waste["reserved"] + waste["stale"]
        assert run["kv_efficiency"] == pytest.approx(run["live_of_total"] / held)
        assert held + window["cached"] + window["free"] == pytest.approx(1)
        assert waste["external"] <= window["free"] + 1e-9
        assert window["saturated"]
        assert 0 < window["kv_efficiency_while_steps_run"] <= run["kv_efficiency"]
    meta = result["meta"]
    assert meta["simulated"] and meta["outputs_same"]
    assert parse_workload(meta["workload"], "result") == workload
    by_name = {(run["policy"], run["block_size"]): run for run in result["runs"]}
    assert by_name["static", 16]["concurrent"] == pytest.approx(4, abs=0.3)  # the pool holds four slots
    assert by_name["paged", 16]["live_of_total"] > 1.5 * by_name["static", 16]["live_of_total"]
    assert by_name["contiguous", 16]["fragmentation"] > 0 == by_name["paged", 16]["fragmentation"]
    tails = [by_name["paged", size]["waste"]["tail"] for size in (8, 16, 32, 64)]
    assert tails == sorted(tails)
