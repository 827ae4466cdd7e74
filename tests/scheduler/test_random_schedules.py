"""Random arrivals, lengths, aborts, priorities, stops and pools: every request gets its scripted tokens, and all blocks come back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.combinations import valid_combinations
from support.simulation import Simulation, text

COMPACTING = ("contiguous", "contiguous-best")


def simulation(policies: dict[str, str], num_blocks: int, block_size: int, max_model_len: int, **settings: Any) -> Simulation:
    """A static placement needs room for a slot. The blocks of a second group, with a window, are as many as drawn or, where a placement
    reserves, as those of the first."""
    if policies["placement"] == "static":
        max_model_len = min(max_model_len, num_blocks * block_size)
    if policies["placement"] not in COMPACTING:
        settings["compaction_blocks"] = 0
    if policies["placement"] != "paged":
        settings["window_blocks"] = num_blocks
    return Simulation(num_blocks=num_blocks, block_size=block_size, max_model_len=max_model_len, **policies, **settings)


def simulations(policies: dict[str, str]) -> st.SearchStrategy[Simulation]:
    return st.builds(
        simulation,
        policies=st.just(policies),
        num_blocks=st.integers(4, 24),
        block_size=st.sampled_from([1, 4, 8]),
        max_num_seqs=st.integers(1, 5),
        max_num_batched_tokens=st.integers(1, 24),
        max_model_len=st.integers(8, 60),
        scheduling_policy=st.sampled_from(["fcfs", "priority"]),
        max_drafts=st.integers(1, 4),
        lag=st.integers(0, 2),
        swap_blocks=st.sampled_from([0, 0, 3, 1000]),
        victim=st.sampled_from(["last", "cheapest"]),
        compaction_blocks=st.sampled_from([0, 1, 3, 100]),
        window=st.sampled_from([0, 0, 1, 3, 8, 20]),
        window_blocks=st.integers(4, 24),
    )


arrivals = st.lists(
    st.fixed_dictionaries(
        {
            "step": st.integers(0, 40),
            "prompt": st.tuples(st.integers(0, 2), st.integers(1, 40)),  # which of three texts, and how much of it
            "max_tokens": st.integers(1, 30),
            "priority": st.integers(0, 2),
            "ignore_eos": st.booleans(),
            "min_tokens": st.integers(0, 8),
            "stop_token_ids": st.lists(st.integers(0, 49), max_size=4),
            "prompt_logprobs": st.sampled_from([None, None, 0]),
            "abort_after": st.one_of(st.none(), st.integers(0, 60)),
        }
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("policies", valid_combinations(), ids=lambda policies: "-".join(policies.values()))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_random_schedules(policies: dict[str, str], data: st.DataObject) -> None:
    sim, requests = data.draw(simulations(policies)), data.draw(arrivals)
    waiting = sorted(enumerate(requests), key=lambda pair: pair[1]["step"])
    aborted: set[str] = set()
    aborts: list[tuple[int, str]] = []
    step = 0
    while waiting or sim.scheduler.has_work():
        while waiting and waiting[0][1]["step"] <= step:
            index, fields = waiting.pop(0)
            name = f"r{index}"
            add(sim, name, fields)
            if fields["abort_after"] is not None:
                aborts.append((step + fields["abort_after"], name))
        for due, name in aborts:
            if due == step and name in sim.scheduler.requests:
                sim.scheduler.abort([name])
                aborted.add(name)
        sim.now += 1
        progresses(sim)
        step += 1
        assert step < 60 + 40 * len(requests) * sim.max_num_seqs * (1 + sim.lag), "too many steps"
    sim.drain()
    sim.check_idle()
    for name in sim.cores.keys() - aborted:
        sim.check_output(name)
    if sim.scheduling_policy == "fcfs" and sim.victim == "last":
        most = max(request.num_preemptions for request in sim.requests.values())
        assert most < sim.max_num_seqs * (2 if sim.window else 1) or sim.prefix_index != "none"
        assert sim.admission != "guaranteed" or not sim.scheduler.stats().preemptions


def add(sim: Simulation, name: str, fields: dict) -> None:
    """Queue a request, with lengths cut to what the pool can hold."""
    longest = min(sim.max_model_len, sim.kv.capacity + 1)
    kind, length = fields["prompt"]
    length = min(length, longest - 1)
    max_tokens = min(fields["max_tokens"], longest - length)
    params = {key: fields[key] for key in ("priority", "ignore_eos", "stop_token_ids", "prompt_logprobs")}
    sim.add(name, text(kind, length), max_tokens, min_tokens=min(fields["min_tokens"], max_tokens), **params)


def progresses(sim: Simulation) -> None:
    """A step that has nothing in flight to wait for schedules a token."""
    idle = not sim.pending
    had_work = bool(sim.scheduler.requests)
    sim.step()
    assert not (idle and had_work) or sim.scheduled[-1].num_scheduled_tokens
