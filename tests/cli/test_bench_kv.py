"""``octavo bench kv`` as a user runs it: on a small random model, and simulated; its JSON, its report, what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from octavo.bench.kv.plan import available_policies
from octavo.bench.report.schema import stored_schema
from octavo.cli.main import app
from support.tiny_models import make

LOAD = """
name = "tiny"
num_requests = 24

[arrivals]
process = "constant"
rate = 100000

[[requests]]
name = "chat"
shared_prefix = { tokens = 16 }
prompt_tokens = { distribution = "uniform", low = 4, high = 40 }
output_tokens = { distribution = "uniform", low = 2, high = 20 }
max_tokens = 72
"""


KIND = '\n[[requests]]\nname = "r"\nprompt_tokens = 40\noutput_tokens = 9\nmax_tokens = 72\n'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("llama")
    make("llama", folder)
    return str(folder)


@pytest.fixture
def load(tmp_path: Path) -> str:
    path = tmp_path / "tiny.toml"
    path.write_text(LOAD)
    return str(path)


def test_a_real_model_gives_the_same_tokens_under_every_policy(
    model: str, load: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "result.json"
    assert app(["bench", "kv", model, "--workload", load, "--output", str(output)]) == 0
    result = json.loads(output.read_text())
    meta = result["meta"]
    assert {run["policy"] for run in result["runs"]} == set(available_policies())
    assert meta["outputs_same"] and meta["outputs_compared"] > 10
    assert not meta["simulated"] and len(meta["numerics_id"]) == 64
    assert all(run["output_tok_s"] > 0 and 0 < run["kv_efficiency"] <= 1 for run in result["runs"])
    assert all(meta["machine"][fact] for fact in ("cpu", "cpus", "octavo", "python", "isa", "num_threads"))
    facts = result["facts"]
    assert facts["seeds"] == {"workload": meta["seed"]} and len(facts["model"]["sha256"]) == 64
    assert facts["machine"]["measured"]["read_bytes_s"] > 0 and facts["command"] and facts["date"]
    shown = capsys.readouterr().out
    assert "paged, 64" in shown and "had the same tokens in each" in re.sub(r"\s+", " ", shown)
    assert "SIMULATED" not in shown


def test_a_report_needs_nothing_outside_itself(load: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "report"
    arguments = ["bench", "kv", "--workload", load, "--simulate", "--policies", "static,contiguous,paged", "--seed", "5"]
    assert app([*arguments, "--num-requests", "30", "--report", str(folder)]) == 0
    assert "SIMULATED" in capsys.readouterr().out
    page = (folder / "report.html").read_text()
    assert "http" not in re.sub(r'"http" \+ "', "", page.replace("http-equiv", ""))
    assert "SIMULATED" in page and "30 requests, seed 5" in page
    assert "paged, 16" in page and "static, 16" in page
    assert page.count("<figure") == len(list((folder / "charts").glob("*.svg"))) >= 5
    written = json.loads((folder / "report.json").read_text())
    jsonschema.validate(written, stored_schema("report"))
    jsonschema.validate(written["result"], stored_schema("kv"))
    assert written["result"]["meta"]["simulated"] and written["facts"]["seeds"] == {"workload": 5}


def test_a_pool_that_is_never_full_is_said(load: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["bench", "kv", "--workload", load, "--simulate", "--policies", "paged", "--pool-tokens", "8192"]) == 0
    assert "WARNING: the pool was not full for long enough under paged at 8" in re.sub(r"\s+", " ", capsys.readouterr().out)


@pytest.mark.parametrize(
    "load",
    [
        '[arrivals]\nprocess = "ramp"\nrate = 100\nend_rate = 900' + KIND + 'prompt = "text"',
        '[arrivals]\nprocess = "poisson"\nrate = 900\nmax_concurrency = 5' + KIND,
        '[trace]\nfile = "t.jsonl"\nblock_size = 16\nprompt = "text"',
    ],
    ids=["ramp of text", "cap", "trace"],
)
def test_every_kind_of_load(load: str, tmp_path: Path) -> None:
    """Text is random tokens in a simulation, where no model reads it: lengths and what is shared stay."""
    lines = [{"timestamp": 2 * i, "input_length": 40, "output_length": 9, "max_tokens": 72, "hash_ids": [0, 1, i]} for i in range(2, 40)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "w.toml").write_text(f'name = "w"\nnum_requests = 38\n{load}')
    output = tmp_path / "result.json"
    arguments = ["--policies", "paged,paged-unshared", "--block-sizes", "16", "--pool-tokens", "512", "--output", str(output)]
    assert app(["bench", "kv", "--workload", str(tmp_path / "w.toml"), "--simulate", *arguments]) == 0
    runs = {run["policy"]: run for run in json.loads(output.read_text())["runs"]}
    assert all(0 < run["kv_efficiency"] <= 1 and run["output_tok_s"] > 0 for run in runs.values())
    if "max_concurrency" in load:
        assert runs["paged"]["concurrent"] <= 5
    if "trace" in load:
        assert runs["paged"]["concurrent"] > runs["paged-unshared"]["concurrent"], "32 of 40 tokens are shared"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policies", "pagd"], "--policies = 'pagd': choose among static"),
        (["--block-sizes", "16,24"], "--block-sizes = 24: choose among 8, 16, 32, 64"),
        (["--block-sizes", "16,x"], "--block-sizes = 16,x: it must be whole numbers"),
        (["--pool-tokens", "64"], "--pool-tokens = 64: the longest request of tiny may need 128 tokens; at least 128"),
        (["--kv-policy", "static"], "--kv-policy = static: this benchmark varies it; use --policies and --block-sizes"),
        (["--output", "no/such/folder/kv.json"], "--output = no/such/folder/kv.json: there is no folder no/such/folder"),
        (["--report", "/proc/report"], "--report = /proc/report: No such file"),
        (["--workload", "missing.toml"], "--workload = missing.toml: No such file"),
    ],
)
def test_bad_values_name_the_flag(arguments: list[str], said: str, load: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["bench", "kv", "--workload", load, "--simulate", *arguments]) == 2
    assert said in capsys.readouterr().err
