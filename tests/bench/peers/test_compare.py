"""``octavo bench compare`` from its file to its report, on mock servers of known behaviour: real processes, real HTTP."""

from __future__ import annotations

import hashlib
import json
import socket
import sys
from pathlib import Path

import jsonschema
import pytest

from octavo.bench.machine import MachineRates
from octavo.bench.peers import compare
from octavo.bench.report.schema import stored_schema
from octavo.cli.main import app
from support.toy_tokenizer import byte_level, write_tokenizer

MOCK = Path(__file__).parents[2] / "support" / "mock_openai.py"
LOADS = """
[[loads]]
name = "one stream"
input_len = 8
output_len = 9
num_prompts = 2
concurrency = 1
shows = ["decode_tok_s", "kv_efficiency"]
[[loads]]
name = "four at once"
input_len = 8
output_len = 4
num_prompts = 8
concurrency = 4
shows = ["ttft_ms", "itl_ms", "output_tok_s"]
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Bench:
    """A folder with a comparison of mocks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engines: list[str] = []
        (folder / "model").mkdir()
        write_tokenizer(folder / "model", byte_level()[0])

    def engine(self, label: str, command: list[str] | None = None, **script: object) -> None:
        """An engine that is a mock with this script, or any other command."""
        port = free_port()
        stem = label.replace(" ", "_")
        mock = [sys.executable, str(MOCK), "--port", "{port}", "--script", json.dumps({"model": "m", **script})]
        lines = [f'name = "{label}"', f"port = {port}", f"command = {json.dumps(command or mock)}", 'weights = "none"']
        lines += ['version_command = ["echo", "7.1"]', 'env = { MOCK = "1" }']
        (self.folder / f"{stem}.toml").write_text("\n".join(lines))
        self.engines.append(f'[[engines]]\nlabel = "{label}"\ndescription = "{stem}.toml"\n')

    def run(self, *flags: str, rounds: int = 2, loads: str = LOADS) -> tuple[int, dict]:
        """Exit status and result."""
        head = f'name = "mocks"\nmodel = "m"\ntokenizer = "{self.folder / "model"}"\nrounds = {rounds}\n'
        file = self.folder / "mocks.toml"
        file.write_text(head + "".join(self.engines) + loads)
        output = self.folder / "result.json"
        status = app(["bench", "compare", str(file), "--output", str(output), "--report", str(self.folder / "report"), *flags])
        return status, json.loads(output.read_text()) if output.exists() else {}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("OCTAVO_BENCH_LOCK", str(tmp_path / "lock"))
    monkeypatch.setenv("COLUMNS", "200")
    rates = MachineRates(read_bytes_s=1.0, int8_ops_s=1.0, bf16_flops_s=1.0, fp32_flops_s=1.0, cpus=(0,))
    monkeypatch.setattr(compare, "measure_rates", lambda cpus, seconds: rates)  # two seconds of every CPU
    return Bench(tmp_path)


def test_two_engines_side_by_side(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.engine("quick", first_ms=15, gap_ms=15)
    bench.engine("slow", first_ms=45, gap_ms=45)
    status, result = bench.run()
    shown = capsys.readouterr().out
    assert status == 0 and not result["partial"]
    quick, slow = result["engines"]
    assert (quick["label"], quick["version"], slow["failures"]) == ("quick", "7.1", [])
    decode = quick["figures"]["one stream/decode_tok_s"]
    assert decode["median"] == pytest.approx(67, rel=0.25) and len(decode["values"]) == 2
    assert decode["low"] <= decode["median"] <= decode["high"] and decode["ratio"] == 1
    assert slow["figures"]["one stream/decode_tok_s"]["ratio"] == pytest.approx(1 / 3, rel=0.25)
    assert slow["figures"]["four at once/itl_p99_ms"]["median"] == pytest.approx(45, rel=0.5)
    assert slow["figures"]["one stream/kv_efficiency"]["median"] is None
    assert quick["figures"]["startup_s"]["median"] > 0 and quick["figures"]["peak_memory_mib"]["median"] > 5
    order = [(part["round"], part["engine"]) for part in result["parts"]]
    assert order == [(1, "quick"), (1, "slow"), (2, "slow"), (2, "quick")]
    row = next(line for line in shown.splitlines() if "decode tok/s (one stream) " in line)  # the sentence before has a colon there
    assert [float(word) for word in row.split() if word.replace(".", "").isdigit()] == pytest.approx(
        [quick["figures"]["one stream/decode_tok_s"]["median"], slow["figures"]["one stream/decode_tok_s"]["median"]], rel=0.01
    )
    assert {path.name for path in (bench.folder / "report").iterdir()} == {"report.html", "report.md", "report.json", "charts", "parts"}
    report = json.loads((bench.folder / "report" / "report.json").read_text())
    assert report["result"]["engines"][0]["figures"] == quick["figures"]
    jsonschema.validate(result, stored_schema("compare"))


@pytest.mark.slow
def test_engines_get_the_same_prompts_at_the_same_seeds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.bench.peers import runner

    sent: dict[tuple[str, int], list[list[int]]] = {}
    draw = runner.Client.draw

    def noted(self, server, load, seed):
        requests = draw(self, server, load, seed)
        sent.setdefault((load.name, seed), []).append([request.prompt_token_ids for request in requests])
        return requests

    monkeypatch.setattr(runner.Client, "draw", noted)
    bench.engine("a")
    bench.engine("b")
    assert bench.run(rounds=2)[0] == 0
    assert [len(both) for (name, _), both in sent.items() if name == "one stream"] == [2, 2]
    assert all(first == second for (name, _), (first, second, *_) in sent.items() if name != "warm-up")
    first, second = (both[0] for (name, _), both in sent.items() if name == "one stream")
    assert first != second  # another round, other prompts


def test_an_engine_that_does_not_start_costs_one_line_and_the_others_go_on(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.engine("broken", [sys.executable, "-c", "raise SystemExit('no such weights')"])
    bench.engine("sound", gap_ms=5)
    status, result = bench.run()
    broken, sound = result["engines"]
    assert status == 1 and not result["partial"]
    assert broken["failures"] == ["its server ended with status 1 (no such weights), before it was ready"]
    assert broken["figures"]["one stream/decode_tok_s"]["median"] is None
    assert len([v for v in sound["figures"]["one stream/decode_tok_s"]["values"] if v]) == 2
    assert "broken: its server ended with status 1" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_an_engine_that_dies_under_load_is_told_and_what_it_did_before_counts(bench: Bench) -> None:
    bench.engine("mortal", die_after=4, gap_ms=50)
    bench.engine("sound", gap_ms=5)
    longer = LOADS.replace("one stream", "more").replace("four at once", "never").replace("num_prompts = 2", "num_prompts = 20")
    status, result = bench.run(rounds=1, loads=LOADS + longer)
    mortal, sound = result["engines"]
    assert status == 1
    assert "the server is gone" in mortal["failures"][0] and not sound["failures"]
    assert mortal["figures"]["one stream/decode_tok_s"]["median"] == pytest.approx(20, rel=0.2)
    assert mortal["figures"]["never/output_tok_s"]["median"] is None and sound["figures"]["never/output_tok_s"]["median"]


@pytest.mark.slow
def test_resume_repeats_nothing_that_is_finished(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.engine("a")
    bench.engine("b")
    assert bench.run("--only", "a", rounds=1)[0] == 0
    status, result = bench.run("--resume", rounds=1)
    shown = " ".join(capsys.readouterr().out.split())
    assert status == 0 and [part["engine"] for part in result["parts"]] == ["a", "b"]
    assert "round-1-a: taken from" in shown and "round-1-b: done" in shown
    bench.run("--resume", rounds=1, loads=LOADS.replace("num_prompts = 2", "num_prompts = 3"))
    assert "taken from" not in capsys.readouterr().out  # it is another comparison now
    bench.run(rounds=1)
    assert "taken from" not in capsys.readouterr().out


def test_what_fails_is_saved_and_tried_again(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.engine("broken", [sys.executable, "-c", "raise SystemExit('no such weights')"])
    assert bench.run(rounds=1)[0] == 1
    saved = json.loads((bench.folder / "report" / "parts" / "round-1-broken.json").read_text())
    assert "no such weights" in saved["failure"]
    bench.run("--resume", rounds=1)
    assert capsys.readouterr().out.count("round-1-broken: starting") == 2


@pytest.mark.slow
def test_sigint_in_a_part_keeps_its_finished_loads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.bench.peers import runner

    offer = runner.offer

    def offer_until(target, requests, **options):
        if len(requests) == 8:  # four at once
            raise KeyboardInterrupt
        return offer(target, requests, **options)

    bench.engine("a", gap_ms=5)
    bench.engine("b")
    with monkeypatch.context() as patch:
        patch.setattr(runner, "offer", offer_until)
        status, result = bench.run(rounds=1)
    assert status == 1 and result["partial"]
    (part,) = result["parts"]
    assert part["interrupted"] and part["failure"] == "stopped by SIGINT" and list(part["loads"]) == ["one stream"]
    assert result["engines"][0]["figures"]["one stream/decode_tok_s"]["median"] > 0
    status, result = bench.run("--resume", rounds=1)
    assert status == 0 and not result["partial"] and [len(part["loads"]) for part in result["parts"]] == [2, 2]


def test_sigint_in_a_load_keeps_what_there_is_of_it_and_saved_parts_that_were_to_come(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from octavo.bench.peers import runner

    offer = runner.offer

    def offer_stopped(target, requests, **options):
        run = offer(target, requests, **options)
        run.interrupted = "stopped by SIGINT" if len(requests) == 8 else run.interrupted
        return run

    bench.engine("a")
    bench.engine("b")
    bench.run("--only", "b", rounds=1)
    monkeypatch.setattr(runner, "offer", offer_stopped)
    status, result = bench.run("--resume", rounds=1)
    a, b = result["parts"]
    assert status == 1 and result["partial"] and (a["interrupted"], b["interrupted"]) == (True, False)
    assert a["loads"]["four at once"]["result"]["partial"]
    figures = [engine["figures"]["four at once/output_tok_s"]["median"] for engine in result["engines"]]
    assert figures[0] is None and figures[1] > 0


@pytest.mark.slow
def test_sigint_in_a_sweep_keeps_its_verdicts_and_starts_no_other_engine(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.bench.sweep.over_http import HttpOffer

    call, rates = HttpOffer.__call__, []

    def interrupted(self, rate, *rest):
        rates.append(rate)
        if len(rates) == 3:  # after the warm-up and a verdict
            raise KeyboardInterrupt
        return call(self, rate, *rest)

    monkeypatch.setattr(HttpOffer, "__call__", interrupted)
    bench.engine("a", first_ms=120)  # so the search begins near 8 a second
    bench.engine("b")
    sweep = '[sweep]\nslo = "ttft:p99<300ms"\ninput_len = 8\noutput_len = 2\nmin_rate = 4\nmax_rate = 16\nresolution = 0.3\n'
    status, result = bench.run(rounds=1, loads=sweep + "requests_per_verdict = 20\nconfirm = 0\nwarmup = 1\n")
    (part,) = result["parts"]
    assert status == 1 and result["partial"] and part["interrupted"]
    assert len(part["sweep"]["verdicts"]) == 1 and result["engines"][0]["figures"]["max_qps"]["median"] is None


def test_cost_and_weights_are_told_and_no_folder_of_this_machine(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_PEERS", str(bench.folder))
    bench.engine("a")
    bench.engine("broken", [sys.executable, "-c", f"raise SystemExit('{bench.folder}/m.gguf: no such file')"])
    file = bench.folder / "a.toml"
    file.write_text('weights_file = "{peers}/a.toml"\n' + file.read_text())
    _, result = bench.run("--price-per-hour", "3.6", rounds=1)
    sound, broken = result["engines"]
    load = result["parts"][0]["loads"]["four at once"]["result"]
    cost = sound["figures"]["four at once/cost_per_million_output"]["median"]
    assert cost == pytest.approx(3.6 / 3600 / load["output_tok_s"] * 1e6)
    assert sound["weights_files"]["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert sound["weights_files"]["name"] == "$OCTAVO_PEERS/a.toml" and broken["weights_files"] is None
    assert "$OCTAVO_PEERS/m.gguf: no such file" in broken["failures"][0]
    report = bench.folder / "report"
    assert not [path.name for path in report.iterdir() if path.is_file() and str(bench.folder) in path.read_text()]


def test_the_plan_is_told_and_nothing_started(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.engine("a", ["/no/such/program"])
    status, result = bench.run("--plan")
    shown = " ".join(capsys.readouterr().out.split())
    assert status == 0 and result == {}
    assert "2 rounds in alternating order" in shown and "minutes" in shown
    assert not (bench.folder / "report").exists()


def test_what_is_not_there_is_refused_in_one_line(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.engine("a")
    assert bench.run("--only", "nobody")[0] == 2
    assert "--only = nobody: there is none of this name; there are a" in capsys.readouterr().err
    assert app(["bench", "compare", str(bench.folder / "none.toml")]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.slow
def test_the_highest_rate_at_the_slo_is_found_for_each(bench: Bench) -> None:
    """A server whose answers take no time keeps every rate tried; one of 1.5 requests a second keeps not even the lowest."""
    bench.engine("quick")
    bench.engine("slow", service="constant", service_rate=1.5)
    sweep = '[sweep]\nslo = "ttft:p99<300ms"\ninput_len = 8\noutput_len = 2\nmin_rate = 8\nmax_rate = 16\nresolution = 1.0\n'
    status, result = bench.run(rounds=1, loads=sweep + "requests_per_verdict = 20\nconfirm = 0\nwarmup = 1\n")
    quick, slow = (engine["figures"]["max_qps"] for engine in result["engines"])
    assert status == 0 and result["slo"] == "ttft:p99<300ms"
    assert (quick["median"], slow["median"], slow["ratio"]) == (16, 0, 0)
    document = json.loads((bench.folder / "report" / "report.json").read_text())
    assert [section["heading"] for section in document["sections"]] == ["Side by side", "The highest rate at the SLO", "Engines"]


def test_a_load_that_takes_far_too_long_is_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.bench.peers import runner

    monkeypatch.setattr(runner, "PATIENCE_SECONDS", 1.0)
    bench.engine("endless", overrides={"9": {"hang_at": 1}})  # after the probe, the warm-up and the first load
    status, result = bench.run(rounds=1, loads=LOADS.replace('name = "', 'expected_seconds = 0\nname = "'))
    assert status == 1
    assert result["engines"][0]["failures"] == ["four at once: it took longer than 1 s"]
