"""Workload files: what is read, what is refused and how, and that a seed fixes everything drawn from one."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.bench.workload.arrivals import Arrivals
from octavo.bench.workload.file import load_workload, parse_workload
from octavo.bench.workload.lengths import Choice, Fixed, Lengths, LogNormal, Uniform
from octavo.bench.workload.requests import RequestKind, SharedPrefix, Tenant, Workload
from octavo.bench.workload.text import PromptText, built_in
from octavo.bench.workload.tokens import Tokens
from octavo.errors import InvalidRequestError

EXAMPLES = Path(__file__).parents[3] / "examples" / "workloads"

GOOD: dict[str, Any] = {
    "name": "mix",
    "num_requests": 10,
    "arrivals": {"process": "gamma", "rate": 2, "burstiness": 0.5},
    "tenants": [{"name": "a", "weight": 2}, {"name": "b"}],
    "requests": [
        {
            "name": "rag",
            "tenants": ["a"],
            "shared_prefix": {"tokens": 64, "count": 3, "zipf": 1.5},
            "prompt_tokens": {"distribution": "lognormal", "median": 20, "sigma": 0.5, "high": 90},
            "output_tokens": {"distribution": "uniform", "low": 4, "high": 40},
            "max_tokens": {"distribution": "choice", "values": [16, 32]},
        },
        {"name": "chat", "weight": 3, "prompt_tokens": 8, "output_tokens": 8, "max_tokens": 64},
    ],
}


def toml(value: Any) -> str:
    """A TOML value. Strings are basic ones, written as JSON writes them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(c):08x}" if ord(c) < 32 or c in '"\\\x7f' else c for c in value) + '"'
    return repr(value)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
weights = st.floats(0.01, 100)
counts = st.integers(1, 2000)


@st.composite
def lengths(draw: st.DrawFn) -> Lengths:
    low, high = sorted([draw(counts), draw(counts)])
    values = draw(st.lists(st.tuples(counts, weights), min_size=1, max_size=4))
    return draw(
        st.sampled_from(
            [
                Fixed(low),
                Uniform(low, high),
                LogNormal(draw(st.floats(1, 500)), draw(st.floats(0, 3)), low, high),
                Choice(tuple(v for v, _ in values), tuple(w for _, w in values)),
            ]
        )
    )


@st.composite
def arrivals(draw: st.DrawFn) -> Arrivals:
    process = draw(st.sampled_from(["poisson", "gamma", "constant", "ramp", "at_once", "closed"]))
    closed, ramp = process == "closed", process == "ramp"
    return Arrivals(
        process=process,
        rate=0.0 if process in ("closed", "at_once") else draw(st.floats(0.01, 1000)),
        burstiness=draw(st.floats(0.01, 100)) if process == "gamma" else 1.0,
        end_rate=draw(st.floats(0.01, 1000)) if ramp else 0.0,
        duration=draw(st.floats(0.01, 1000)) if ramp else None,
        concurrency=draw(st.integers(1, 100)) if closed else 0,
        max_concurrency=None if closed else draw(st.none() | st.integers(1, 100)),
    )


RANDOM_TOKENS: st.SearchStrategy[PromptText | None] = st.none()


@st.composite
def workloads(draw: st.DrawFn, prompts: st.SearchStrategy[PromptText | None] = RANDOM_TOKENS) -> Workload:
    tenants = tuple(Tenant(name=name, weight=draw(weights)) for name in draw(st.lists(names, max_size=3, unique=True)))
    kinds = tuple(
        RequestKind(
            name=name,
            weight=draw(weights),
            tenants=tuple(draw(st.lists(st.sampled_from([t.name for t in tenants]), max_size=2))) if tenants else (),
            shared_prefix=draw(st.none() | st.builds(SharedPrefix, tokens=counts, count=st.integers(1, 9), zipf=st.floats(0, 3))),
            prompt=draw(prompts),
            prompt_tokens=draw(lengths()),
            output_tokens=draw(lengths()),
            max_tokens=draw(lengths()),
        )
        for name in draw(st.lists(names, min_size=1, max_size=3, unique=True))
    )
    return Workload(
        name=draw(names),
        description=draw(st.just("") | names),
        seed=draw(st.integers(0, 2**63 - 1)),
        num_requests=draw(st.integers(1, 20)),
        arrivals=draw(arrivals()),
        tenants=tenants,
        requests=kinds,
    )


@settings(max_examples=60, deadline=None)
@given(workloads(st.none() | st.just(built_in())))
def test_a_workload_written_as_toml_is_read_back_the_same(tmp_path_factory: pytest.TempPathFactory, workload: Workload) -> None:
    path = tmp_path_factory.mktemp("workload") / "w.toml"
    path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in workload.as_toml().items()), encoding="utf-8")
    assert load_workload(path) == workload


@settings(max_examples=60, deadline=None)
@given(workloads())
def test_draws_keep_to_what_the_workload_says(workload: Workload) -> None:
    requests = workload.draw(Tokens.of_size(50))
    kinds = {kind.name: kind for kind in workload.requests}
    assert [r.index for r in requests] == list(range(workload.num_requests))
    assert all(a.arrival <= b.arrival for a, b in itertools.pairwise(requests))
    for request in requests:
        kind = kinds[request.kind]
        prefix = kind.shared_prefix.tokens if kind.shared_prefix else 0
        assert prefix + kind.prompt_tokens.low <= len(request.prompt_token_ids) <= prefix + kind.prompt_tokens.high
        assert kind.max_tokens.low <= request.max_tokens <= kind.max_tokens.high
        assert min(kind.output_tokens.low, request.max_tokens) <= request.output_tokens <= min(kind.output_tokens.high, request.max_tokens)
        assert len(request.prompt_token_ids) + request.max_tokens <= workload.max_model_len
        assert all(0 <= token < 50 for token in request.prompt_token_ids)
        assert request.tenant in (kind.tenants or [t.name for t in workload.tenants] or [None])


@settings(max_examples=30, deadline=None)
@given(workloads(), st.integers(1, 40))
def test_the_first_requests_do_not_depend_on_how_many_there_are(workload: Workload, more: int) -> None:
    requests = workload.draw(Tokens.of_size(1000))
    assert dataclasses.replace(workload, num_requests=workload.num_requests + more).draw(Tokens.of_size(1000))[: len(requests)] == requests


def test_a_change_of_the_answers_leaves_prompts_and_arrivals_alone() -> None:
    before = parse_workload(GOOD, "x")
    kinds = tuple(dataclasses.replace(kind, output_tokens=Fixed(1)) for kind in before.requests)
    after = dataclasses.replace(before, requests=kinds)
    for a, b in zip(before.draw(Tokens.of_size(100)), after.draw(Tokens.of_size(100)), strict=True):
        assert b.output_tokens == 1
        assert dataclasses.replace(a, output_tokens=1) == b


def test_a_seed_changes_everything_drawn() -> None:
    workload = parse_workload(GOOD, "x")
    first, other = workload.draw(Tokens.of_size(100)), dataclasses.replace(workload, seed=1).draw(Tokens.of_size(100))
    assert [r.arrival for r in first] != [r.arrival for r in other]
    assert [r.prompt_token_ids for r in first] != [r.prompt_token_ids for r in other]


def test_lognormal_has_its_median_and_sigma() -> None:
    random = np.random.default_rng(0)
    drawn = np.array([LogNormal(200.0, 0.7, 1, 10**6).draw(random) for _ in range(20_000)])
    assert np.median(drawn) == pytest.approx(200, rel=0.03)
    assert np.log(drawn).std() == pytest.approx(0.7, rel=0.03)


def test_prefixes_are_shared_within_a_tenant_and_popular_as_zipf_says() -> None:
    kind = {"name": "rag", "prompt_tokens": 4, "output_tokens": 1, "max_tokens": 1}
    tables = GOOD | {"num_requests": 3000, "requests": [kind | {"shared_prefix": {"tokens": 16, "count": 2, "zipf": 1.0}}]}
    seen: dict[tuple[str | None, tuple[int, ...]], int] = {}
    for request in parse_workload(tables, "x").draw(Tokens.of_size(1000)):
        key = request.tenant, tuple(request.prompt_token_ids[:16])
        seen[key] = seen.get(key, 0) + 1
    # Two tenants, 2 : 1, with two prefixes each, 1 : 1/2; none is common to both tenants.
    assert len(seen) == len({prefix for _, prefix in seen}) == 4
    shares = sorted(count / 3000 for count in seen.values())
    assert shares == pytest.approx([1 / 9, 2 / 9, 2 / 9, 4 / 9], abs=0.03)


def change(path: list[str | int], value: Any) -> dict[str, Any]:
    tables = copy.deepcopy(GOOD)
    place: Any = tables
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return tables


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["num_requets"], 5, "w.toml: num_requets = 5: there is no such key here; there are name, description, seed, trace, arrivals"),
        (["num_requests"], 0, "w.toml: num_requests = 0: it must be an integer from 1 to 1000000"),
        (["num_requests"], True, "num_requests = True: it must be an integer"),
        (["seed"], 1.5, "seed = 1.5: it must be an integer"),
        (["name"], None, "w.toml: name is missing"),
        (["name"], "", "name = '': it must be a string that is not empty"),
        (["arrivals"], 3, "arrivals = 3: it must be a table"),
        (
            ["arrivals", "process"],
            "random",
            "[arrivals] process = 'random': choose one of poisson, gamma, constant, ramp, at_once, closed, trace",
        ),
        (["arrivals", "rate"], -1, "[arrivals] rate = -1: it must be a number from 1e-06 to 1e+06"),
        (["arrivals", "rate"], float("nan"), "[arrivals] rate = nan: it must be a number"),
        (["arrivals", "concurrency"], 4, "[arrivals] concurrency = 4: there is no such key here; there are process, rate, burstiness"),
        (["arrivals"], {"process": "ramp", "rate": 1}, "[arrivals] end_rate is missing"),
        (["arrivals"], {"process": "ramp", "rate": 1, "end_rate": 0}, "[arrivals] end_rate = 0: it must be a number from 1e-06"),
        (["arrivals"], {"process": "ramp", "rate": 1, "end_rate": 2, "duration": 0}, "[arrivals] duration = 0: it must be a number"),
        (["arrivals"], {"process": "at_once", "rate": 1}, "[arrivals] rate = 1: there is no such key here"),
        (["arrivals"], {"process": "trace"}, "[arrivals] process = 'trace': there is no [trace] to take them from"),
        (["arrivals", "max_concurrency"], 0, "[arrivals] max_concurrency = 0: it must be an integer from 1 to 65536"),
        (["requests", 0, "prompt"], "poems", "[requests 1] prompt = 'poems': choose one of random, text"),
        (["requests", 0, "prompt"], {"field": "x"}, "[requests 1.prompt] file is missing"),
        (["tenants", 1, "weight"], "2", "[tenants 2] weight = '2': it must be a number"),
        (["tenants", 1, "name"], "a", "tenants = ['a', 'a']: each needs a name of its own"),
        (["requests"], [], "requests = []: at least one [[requests]]"),
        (["requests"], {"name": "x"}, "requests = {'name': 'x'}: it must be an array of tables, [[requests]]"),
        (["requests", 0, "tenants"], ["c"], "[requests 1] tenants = ['c']: 'c' is no [[tenants]] name; there are a, b"),
        (["requests", 0, "tenants"], [1], "[requests 1] tenants = [1]: it must be a list of strings"),
        (["requests", 1, "prompt_tokens"], 0, "[requests 2] prompt_tokens = 0: it must be an integer from 1 to 1048576"),
        (["requests", 1, "max_tokens"], None, "[requests 2] max_tokens is missing"),
        (["requests", 0, "shared_prefix", "count"], 0, "[requests 1.shared_prefix] count = 0: it must be an integer from 1"),
        (["requests", 0, "prompt_tokens", "distribution"], "normal", "distribution = 'normal': choose one of fixed, uniform, lognormal"),
        (["requests", 0, "prompt_tokens", "high"], None, "[requests 1.prompt_tokens] high is missing"),
        (
            ["requests", 0, "prompt_tokens", "mean"],
            9,
            "mean = 9: there is no such key here; there are distribution, median",
        ),
        (["requests", 0, "output_tokens", "high"], 3, "[requests 1.output_tokens] high = 3: it must be an integer from 4 to 1048576"),
        (["requests", 0, "max_tokens", "values"], [], "[requests 1.max_tokens] values = []: at least one"),
        (["requests", 0, "max_tokens", "weights"], [1], "[requests 1.max_tokens] weights = [1]: as many as values (2)"),
        (["requests", 0, "max_tokens", "weights"], [0, 0], "not all of them 0"),
    ],
)
def test_bad_values_name_file_table_key_value_and_limit(path: list[str | int], value: Any, said: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        parse_workload(change(path, value), "w.toml")
    assert str(error.value).startswith("w.toml: ")
    assert said in str(error.value)
    assert error.value.field == "workload"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "low", "distribution", "x"]), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(st.data(), anything)
def test_any_value_anywhere_is_read_or_refused_with_the_files_name(data: st.DataObject, value: Any) -> None:
    """Nothing gets through as another kind of error."""
    path: list[str | int] = []
    place: Any = GOOD
    while isinstance(place, dict | list) and (not path or data.draw(st.booleans())):
        path.append(data.draw(st.sampled_from(list(place)) if isinstance(place, dict) else st.integers(0, len(place) - 1)))
        place = place[path[-1]]
    try:
        workload = parse_workload(change(path, value), "w.toml")
    except InvalidRequestError as error:
        assert str(error).startswith("w.toml: ")
    else:
        assert parse_workload(workload.as_toml(), "again") == workload


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), (b"name = ", "it is not TOML"), (b"name = '\xff'", "it is not TOML"), (b"", "name is missing")],
)
def test_a_file_that_cannot_be_read_is_named(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=said) as error:
        load_workload(path)
    assert str(path) in str(error.value)


def test_the_examples_are_what_they_say() -> None:
    loads = {path.stem: load_workload(path) for path in EXAMPLES.glob("*.toml")}
    assert {"fixed", "chat", "rag", "tenants", "ramp", "conversations", "text"} <= loads.keys()
    assert all(workload.name == stem and workload.description for stem, workload in loads.items())
    conversations = loads["conversations"]
    assert conversations.trace and conversations.trace.speedup == 2 and conversations.num_requests == len(conversations.trace.rows)
    ramp = loads["ramp"]
    assert ramp.num_requests == pytest.approx(ramp.arrivals.expected(120, ramp.num_requests), rel=0.01)
    rag = loads["chat_rag"]
    assert len(rag.tenants) > 1 and any(kind.shared_prefix for kind in rag.requests)
    stated = [request.max_tokens for request in rag.draw(Tokens.of_size(1000))]
    assert min(stated) == 512 and max(stated) == 2048
