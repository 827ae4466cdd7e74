"""Traces: the public formats as they are published, what is refused and how, and what a replay sends when."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.bench.workload.file import load_workload, parse_workload
from octavo.bench.workload.requests import Workload
from octavo.bench.workload.tokens import Tokens
from octavo.errors import InvalidRequestError

TOKENS = Tokens.of_size(1000)


def replay(folder: Path, content: str | list[dict[str, Any]], name: str = "t.jsonl", **tables: Any) -> Workload:
    """A workload of a trace of that content; ``tables`` are keys of [trace], and "top" those beside it."""
    text = content if isinstance(content, str) else "".join(json.dumps(line) + "\n" for line in content)
    (folder / name).write_text(text, encoding="utf-8")
    top = tables.pop("top", {})
    return parse_workload({"name": "t", "trace": {"file": name, **tables}, **top}, "w.toml", folder)


def test_mooncakes_format(tmp_path: Path) -> None:
    """Times in ms; blocks of 512 tokens by id, the last one not full: where ids are the same, so are the tokens, and only there."""
    lines = [
        {"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]},
        {"timestamp": 250, "input_length": 1300, "output_length": 3, "hash_ids": [0, 1, 7]},
        {"timestamp": 3000, "input_length": 600, "output_length": 20, "hash_ids": [0]},
    ]
    load = replay(tmp_path, lines)
    assert load.arrivals.process == "trace" and load.num_requests == 3 and load.max_model_len == 1600
    first, second, third = load.draw(TOKENS)
    assert [r.arrival for r in (first, second, third)] == [0, 0.25, 3.0]
    assert [len(r.prompt_token_ids) for r in (first, second, third)] == [1100, 1300, 600]
    assert [(r.output_tokens, r.max_tokens) for r in (first, second, third)] == [(500, 500), (3, 3), (20, 20)]
    assert first.prompt_token_ids[:1024] == second.prompt_token_ids[:1024]
    assert first.prompt_token_ids[:512] == third.prompt_token_ids[:512]
    assert first.prompt_token_ids[1024:1100] != second.prompt_token_ids[1024:1100]
    assert first.prompt_token_ids[512:600] != third.prompt_token_ids[512:600]


def test_burstgpts_format(tmp_path: Path) -> None:
    """CSV, times in seconds, other columns beside."""
    text = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,17,230,247,API log\n"
    )
    first, second = replay(tmp_path, text, "burst.csv").draw(TOKENS)
    assert (first.arrival, second.arrival) == (0, 40)
    assert (len(first.prompt_token_ids), first.output_tokens, first.kind) == (472, 18, "Conversation log")
    assert (len(second.prompt_token_ids), second.output_tokens, second.kind) == (17, 230, "API log")


def test_azures_format(tmp_path: Path) -> None:
    """CSV, times as dates with seven digits of a second, with or without a zone."""
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n2023-11-16 19:15:51.0+01:00,8,9\n"
    )
    load = replay(tmp_path, text, "azure.CSV")
    assert [r.arrival for r in load.draw(TOKENS)] == pytest.approx([0, 4.314579, 4.31941], abs=1e-5)
    assert [(len(r.prompt_token_ids), r.output_tokens) for r in load.draw(TOKENS)] == [(374, 44), (396, 109), (8, 9)]


def test_a_lines_own_words(tmp_path: Path) -> None:
    lines = [
        {"arrival": 1.5, "input_tokens": 4, "output_tokens": 2, "max_tokens": 9, "tenant": "a", "kind": "chat", "hash_ids": ["x", "y"]},
        {"arrival": 1.5, "input_tokens": 4, "output_tokens": 2, "tenant": "b", "hash_ids": ["x", "z"]},
        {"arrival": 0.5, "input_tokens": 4, "output_tokens": 2, "tenant": None, "hash_ids": None},
    ]
    early, first, second = replay(tmp_path, lines, block_size=2).draw(TOKENS)  # lines of one time stay in order
    assert [r.arrival for r in (early, first, second)] == [0, 1, 1]
    assert (first.tenant, first.kind, first.max_tokens, first.output_tokens) == ("a", "chat", 9, 2)
    assert (second.tenant, second.kind, early.tenant) == ("b", "trace", None)
    assert first.prompt_token_ids[:2] == second.prompt_token_ids[:2]
    assert first.prompt_token_ids[2:] != second.prompt_token_ids[2:]


LINES = [{"timestamp": 1000 * second, "input_length": 10 + second, "output_length": 1} for second in range(10)]


def test_a_part_of_a_trace_at_another_speed(tmp_path: Path) -> None:
    """From 2.5 s on, for 4 s: the requests of 3, 4, 5 and 6 s, their times counted from 2.5 s, at twice the speed."""
    load = replay(tmp_path, LINES, start=2.5, duration=4, speedup=2)
    drawn = load.draw(TOKENS)
    assert [r.arrival for r in drawn] == [0.25, 0.75, 1.25, 1.75]
    assert [len(r.prompt_token_ids) for r in drawn] == [13, 14, 15, 16]
    assert len(replay(tmp_path, LINES, top={"num_requests": 3}).draw(TOKENS)) == 3
    assert [r.arrival for r in replay(tmp_path, LINES, time_unit="s").draw(TOKENS)][:2] == [0, 1000]


def test_lengths_of_a_trace_at_times_of_ones_own(tmp_path: Path) -> None:
    """Beside [arrivals] of another process, a trace gives lengths, over again when it is through; own tokens differ each time."""
    load = replay(tmp_path, LINES, top={"arrivals": {"process": "constant", "rate": 4}, "num_requests": 25})
    drawn = load.draw(TOKENS)
    assert [r.arrival for r in drawn[:3]] == [0.25, 0.5, 0.75]
    assert [len(r.prompt_token_ids) for r in drawn] == [10 + i % 10 for i in range(25)]
    assert drawn[0].prompt_token_ids != drawn[10].prompt_token_ids


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1]", "line 2: [1]: it must be a JSON object"),
        ('{"timestamp": 1', "line 2: it is not JSON"),
        ('{"timestamp": 1, "input_length": 1}', "line 2: one of output_length, output_tokens, completion_tokens"),
        ({"timestamp": -1}, "line 2: timestamp = -1: it must be a number from 0, in ms"),
        ({"timestamp": "soon"}, "line 2: timestamp = 'soon': it must be a number"),
        ({"timestamp": True}, "line 2: timestamp = True: it must be a number"),
        ({"input_length": 0}, "line 2: input_length = 0: it must be an integer from 1 to 1048576"),
        ({"input_length": 1.5}, "line 2: input_length = 1.5: it must be an integer"),
        ({"output_length": float("nan")}, "line 2: output_length = nan: it must be an integer"),
        ({"output_length": 2**21}, "line 2: output_length = 2097152: it must be an integer from 1 to 1048576"),
        ({"max_tokens": 4}, "line 2: max_tokens = 4: it must be an integer from 5 to 1048576"),
        ({"hash_ids": 3}, "line 2: hash_ids = 3: it must be a list"),
        ({"hash_ids": [-1]}, "line 2: hash_ids = [-1]: it must be a list of integers from 0"),
        ({"hash_ids": [1, 2]}, "line 2: hash_ids = [1, 2]: the prompt has 1 blocks of 512 tokens at most"),
        ({"tenant": 3}, "line 2: tenant = 3: it must be a string"),
    ],
)
def test_a_bad_line_is_named_with_key_value_and_limit(line: str | dict[str, Any], said: str, tmp_path: Path) -> None:
    good = {"timestamp": 0, "input_length": 3, "output_length": 5}
    bad = line if isinstance(line, str) else json.dumps(good | line)
    with pytest.raises(InvalidRequestError) as error:
        replay(tmp_path, json.dumps(good) + "\n" + bad + "\n")
    assert str(error.value).startswith(str(tmp_path / "t.jsonl")) and said in str(error.value)
    assert error.value.field == "workload"


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"speedup": 0}, "w.toml: [trace] speedup = 0: it must be a number from 1e-06"),
        ({"time_unit": "h"}, "w.toml: [trace] time_unit = 'h': choose one of ms, s, date"),
        ({"sped": 2}, "w.toml: [trace] sped = 2: there is no such key here; there are file, speedup, start"),
        ({"start": 60}, "t.jsonl: start = 60: it has no request from there on; it lasts 9 s"),
        ({"time_unit": "date"}, "line 1: timestamp = 0: it must be a date and time"),
        ({"prompt": "x"}, "w.toml: [trace] prompt = 'x': choose one of random, text"),
        ({"top": {"num_requests": 11}}, "w.toml: num_requests = 11: it must be an integer from 1 to 10"),
        (
            {"top": {"tenants": [{"name": "a"}]}},
            "w.toml: trace = 't.jsonl': its lines say who asks for what: no [[requests]] or [[tenants]]",
        ),
    ],
)
def test_a_bad_table_is_refused(tables: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError) as error:
        replay(tmp_path, LINES, **tables)
    assert said in str(error.value)


@pytest.mark.parametrize(("content", "said"), [("", "it has no requests"), ("\n\n", "it has no requests")])
def test_an_empty_trace_is_refused(content: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        replay(tmp_path, content)


def test_a_trace_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"file = .*none\.jsonl: No such file"):
        parse_workload({"name": "t", "trace": {"file": "none.jsonl"}}, "w.toml", tmp_path)


def test_paths_start_at_the_workload_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "t.jsonl").write_text(json.dumps(LINES[0]))
    (tmp_path / "inner" / "w.toml").write_text('name = "w"\n[trace]\nfile = "t.jsonl"\n')
    monkeypatch.chdir(tmp_path)
    load = load_workload(Path("inner/w.toml"))
    assert load.num_requests == 1
    assert parse_workload(load.as_toml(), "again", tmp_path / "inner") == load


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.lists(st.integers(-1, 3), max_size=4)
keys = st.sampled_from(["timestamp", "Timestamp", "TIMESTAMP", "input_length", "output_length", "max_tokens", "hash_ids", "kind", "tenant"])
lines = st.dictionaries(keys, values, max_size=4).map(lambda change: {"timestamp": 1, "input_length": 2, "output_length": 2} | change)


@settings(max_examples=150, deadline=None)
@given(st.lists(lines, min_size=1, max_size=3), st.integers(1, 3))
def test_any_line_is_replayed_or_refused_with_its_place(
    tmp_path_factory: pytest.TempPathFactory, content: list[dict[str, Any]], block_size: int
) -> None:
    folder = tmp_path_factory.mktemp("trace", numbered=True)
    try:
        load = replay(folder, content, block_size=block_size)
    except InvalidRequestError as error:
        assert str(error).startswith(f"{folder / 't.jsonl'}: line ")
        return
    drawn = load.draw(TOKENS)
    assert load.trace is not None
    assert [len(r.prompt_token_ids) for r in drawn] == [row.input_tokens for row in load.trace.rows]
    assert drawn[0].arrival == 0 and all(a.arrival <= b.arrival for a, b in itertools.pairwise(drawn))
    assert parse_workload(load.as_toml(), "again", folder) == load
