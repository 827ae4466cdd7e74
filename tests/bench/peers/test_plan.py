"""Comparisons: what is run in which order, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.bench.peers.description import Places
from octavo.bench.peers.plan import Comparison, load_comparison, select
from octavo.errors import InvalidRequestError

SHIPPED = Path(__file__).parents[3] / "benchmarks" / "peers" / "cpu_smollm2.toml"
SAME_FILE = SHIPPED.with_name("cpu_gemma3.toml")
ENGINE = """
name = "Engine"
port = 9000
command = ["engine", "{model}"]
weights = "Q4"
startup_seconds = 4
[variants.small]
args = ["--chunk", "16"]
"""
COMPARISON = """
name = "three"
model = "m"
tokenizer = "{peers}/m.gguf"
seed = 5
rounds = 3
[[engines]]
label = "A"
description = "engine.toml"
sweep_variant = "small"
[[engines]]
label = "B"
description = "engine.toml"
sweep = false
[[engines]]
label = "C"
description = "engine.toml"
variant = "small"
[[loads]]
name = "closed"
input_len = 32
output_len = 8
num_prompts = 4
concurrency = 2
shows = ["output_tok_s"]
expected_seconds = 10
[[loads]]
name = "open"
input_len = 64
output_len = 8
num_prompts = 50
rate = 4
[sweep]
slo = "itl:p99<50ms"
input_len = 64
output_len = 8
requests_per_verdict = 40
expected_seconds = 100
"""


def load(folder: Path, text: str = COMPARISON) -> Comparison:
    (folder / "engine.toml").write_text(ENGINE)
    (folder / "three.toml").write_text(text)
    return load_comparison(folder / "three.toml", Places(peers=Path("/p"), model="", cpus=[0], python="python"))


def test_rounds_alternate_and_sweeps_come_last_the_other_way_round_than_the_last_round(tmp_path: Path) -> None:
    parts = load(tmp_path).parts()
    assert "".join(part.entrant.label for part in parts) == "ABC" + "CBA" + "ABC" + "CA"
    two = load(tmp_path, COMPARISON.replace("rounds = 3", "rounds = 2"))
    assert "".join(part.entrant.label for part in two.parts()) == "ABC" + "CBA" + "AC"
    assert [part.round for part in parts] == [1] * 3 + [2] * 3 + [3] * 3 + [0] * 2
    assert [part.server.command for part in parts[-2:]] == [("engine", "m", "--chunk", "16")] * 2  # set up for the SLO
    assert parts[0].server.command == ("engine", "m")
    assert len({part.name for part in parts}) == len(parts)


def test_one_engine_may_be_judged_less_carefully_near_its_limit(tmp_path: Path) -> None:
    comparison = load(tmp_path)
    other = load(tmp_path, COMPARISON.replace('variant = "small"\n[[loads]]', 'variant = "small"\nsweep_confirm = 0\n[[loads]]', 1))
    *_, c, a = comparison.parts()
    *_, other_c, other_a = other.parts()
    assert [comparison.sweep_of(a), comparison.sweep_of(c), other.sweep_of(other_a)] == [comparison.sweep] * 3
    plan = other.sweep_of(other_c)
    assert plan is not None and plan.options == {"requests_per_verdict": 40, "confirm": 0}
    assert comparison.digest(a) == other.digest(other_a)  # --resume keeps it
    assert comparison.digest(c) != other.digest(other_c)
    with pytest.raises(InvalidRequestError, match="sweep_confirm"):
        load(tmp_path, COMPARISON.replace("sweep = false", "sweep_confirm = 101"))


def test_engines_of_one_round_get_the_same_requests_and_rounds_do_not(tmp_path: Path) -> None:
    comparison = load(tmp_path)
    seeds = [comparison.seed_of(part) for part in comparison.parts()]
    assert seeds[:9] == [6] * 3 + [7] * 3 + [8] * 3
    assert len(set(seeds[9:])) == 1


def test_loads_are_workloads(tmp_path: Path) -> None:
    closed, opened = load(tmp_path).loads
    assert closed.workload(1).arrivals.process == "closed" and closed.workload(1).arrivals.concurrency == 2
    arrivals = opened.workload(1).arrivals
    assert (arrivals.process, arrivals.rate, opened.workload(1).num_requests) == ("poisson", 4, 50)
    assert load(tmp_path).tokenizer == "/p/m.gguf"


def test_what_it_may_take_is_told(tmp_path: Path) -> None:
    comparison = load(tmp_path)
    parts = comparison.parts()
    assert comparison.expected_seconds(parts[0]) == 4 + 10 + 30
    assert comparison.expected_seconds(parts[-1]) == 4 + 100


def test_less_of_it_can_be_chosen(tmp_path: Path) -> None:
    chosen = select(load(tmp_path), only=["C", "A"], loads=["open"], rounds=1, skip_sweep=True)
    assert [part.name for part in chosen.parts()] == ["round-1-a", "round-1-c"]
    assert [each.name for each in chosen.loads] == ["open"]
    with pytest.raises(InvalidRequestError, match="only = D: there is none of this name; there are A, B, C"):
        select(load(tmp_path), only=["D"], loads=None, rounds=None, skip_sweep=False)
    with pytest.raises(InvalidRequestError, match="loads = x: there is none"):
        select(load(tmp_path), only=None, loads=["x"], rounds=None, skip_sweep=False)


def test_where_the_weights_lie_is_told_and_shapes_nothing_that_the_command_does_not(tmp_path: Path) -> None:
    comparison = load(tmp_path)
    told = comparison.digest(comparison.parts()[0])
    (tmp_path / "engine.toml").write_text(ENGINE.replace("weights =", 'weights_file = "w"\nweights ='))
    other = load_comparison(tmp_path / "three.toml", Places(peers=Path("/p"), model="", cpus=[0], python="python"))
    assert other.parts()[0].server.weights_file == "w" and other.digest(other.parts()[0]) == told


def test_a_digest_tells_what_shapes_a_part(tmp_path: Path) -> None:
    comparison = load(tmp_path)
    a, b, c, *_ = comparison.parts()
    assert len({comparison.digest(part) for part in comparison.parts()}) == 3 * 2 + 2 - 1  # A and B are alike, and A and C in the sweep
    fewer = select(comparison, only=["A"], loads=None, rounds=2, skip_sweep=True)
    assert fewer.digest(fewer.parts()[0]) == comparison.digest(a) == comparison.digest(b) != comparison.digest(c)
    other = load(tmp_path, COMPARISON.replace("num_prompts = 50", "num_prompts = 51"))
    assert other.digest(other.parts()[0]) != comparison.digest(a)
    assert other.digest(other.parts()[-1]) == comparison.digest(comparison.parts()[-1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('label = "B"', 'label = "A"'), "engines = .*: each needs a name of its own"),
        (('name = "open"', 'name = "closed"'), "loads = .*: each needs a name of its own"),
        (("rate = 4", "rate = 0"), r"\[loads 2\] rate = 0: it must be a number from"),
        (("output_tok_s", "speed"), r"\[loads 1\] shows = \['speed'\]: 'speed' is none of"),
        (("rounds = 3", "rounds = 0"), "rounds = 0: it must be an integer from 1"),
        (("requests_per_verdict = 40", "requests = 40"), r"\[sweep\] requests = 40: there is no such key"),
        (('variant = "small"\n[[loads]]', 'variant = "tiny"\n[[loads]]'), "variants = .*: there is no 'tiny'"),
    ],
)
def test_bad_comparisons_are_refused(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    assert change[0] in COMPARISON
    with pytest.raises(InvalidRequestError, match=said):
        load(tmp_path, COMPARISON.replace(*change))


def test_a_bad_slo_is_refused_when_the_file_is_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="slo = 'itl:p99'"):
        load(tmp_path, COMPARISON.replace("itl:p99<50ms", "itl:p99"))


def test_the_shipped_comparison_takes_at_most_seventy_five_minutes(tmp_path: Path) -> None:
    comparison = load_comparison(SHIPPED, Places(peers=tmp_path, model="", cpus=[0, 1], python="python"))
    assert sum(comparison.expected_seconds(part) for part in comparison.parts()) <= 75 * 60
    assert {entrant.server.name for entrant in comparison.entrants} == {"Octavo", "llama.cpp", "vLLM CPU", "OpenVINO GenAI"}
    octavo, llama = comparison.entrants[:2]
    assert octavo.server.command[4] == llama.server.command[2] == str(tmp_path / "models" / "smollm2-135m-instruct-q4_1.gguf")


def test_the_comparison_on_gemma3_has_both_engines_on_one_file(tmp_path: Path) -> None:
    comparison = load_comparison(SAME_FILE, Places(peers=tmp_path, model="", cpus=[0, 1], python="python"))
    octavo, llama = comparison.entrants
    file = str(tmp_path / "models" / "gemma-3-270m-q4_k_m.gguf")
    assert octavo.server.command[4] == llama.server.command[2] == file
    assert octavo.server.weights_file == llama.server.weights_file == file
