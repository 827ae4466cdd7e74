"""Facts: what a reader needs to check a figure, and nothing that is private."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from octavo.bench.machine import MachineRates
from octavo.bench.report import facts, private
from octavo.bench.report.cpu import cpu_facts
from octavo.bench.report.data import as_data
from octavo.bench.report.facts_tables import facts_in_short, facts_section
from octavo.bench.report.private import cleaned
from support.documents import document

RATES = MachineRates(read_bytes_s=4e10, int8_ops_s=2e12, bf16_flops_s=1e12, fp32_flops_s=5e11, cpus=(0, 1))


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/gerda")
    monkeypatch.setattr(getpass, "getuser", lambda: "gerda")


def test_what_makes_a_report_checkable_is_there() -> None:
    found = facts.collect(
        argv=["/usr/bin/octavo", "bench", "serve", "--seed", "3"],
        client={"request_rate": 4.0},
        server={"engine": "octavo", "version": "0.1.0"},
        seeds={"workload": 3},
        rates=RATES,
    )
    assert found["command"] == "octavo bench serve --seed 3"
    assert found["date"].endswith("+00:00")
    assert all(found["software"][name] for name in ("octavo", "python", "numpy", "kernel"))
    assert found["machine"]["cpu"] and found["machine"]["usable_cpus"] >= 1 and found["machine"]["memory_bytes"] > 0
    assert found["machine"]["measured"]["read_bytes_s"] == 4e10
    assert (found["seeds"], found["client"], found["server"]["version"]) == ({"workload": 3}, {"request_rate": 4.0}, "0.1.0")
    json.dumps(found)


@pytest.mark.usefixtures("somebody")
def test_nothing_private_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_VARIABLE", "swordfish-in-the-environment")
    argv = ["/home/gerda/venv/bin/octavo", "bench", "serve", "--url", "http://gerda:pw@host:8000/v1", "--api-key", "sk-secret-1"]
    argv += ["--hf-token=hf-secret-2", "--header", "Authorization: Bearer secret-3", "--report", "/home/gerda/out", "--log", "/mnt/gerda/x"]
    server = {
        "command": ["/Users/hans/bin/vllm", "--api-key", "x"],
        "settings": {"api_key": ["sk-secret-4"], "model": "/home/gerda/m.gguf"},
    }
    found = json.dumps(facts.collect(argv=argv, server=server, model="/home/gerda/m.gguf", rates=False))
    for word in ("gerda", "hans", "secret", "swordfish", ":pw"):
        assert word not in found
    assert "--api-key … --hf-token=…" in json.loads(found)["command"]
    assert "~/out" in found and "/mnt/user/x" in found


@pytest.mark.usefixtures("somebody")
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("/home/gerda/a b", "~/a b"),
        ("/home/gerda2/a", "~/a"),
        ("in /root, or", "in ~, or"),
        ("/rooted/x", "/rooted/x"),
        ("https://u:p@h.org/x", "https://h.org/x"),
        ("mail gerda", "mail gerda"),
        ("/srv/gerda/x", "/srv/user/x"),
        ("/srv/gerdas/x", "/srv/gerdas/x"),
    ],
)
def test_homes_users_and_credentials_are_left_out_of_texts(said: str, shown: str) -> None:
    assert private.without_private(said) == shown


@pytest.mark.usefixtures("somebody")
def test_a_whole_report_is_cleaned_and_stays_what_it_is() -> None:
    whole = cleaned(document("http://gerda:pw@host/x in /home/gerda/a.toml"))
    text = json.dumps(as_data(whole))
    assert "gerda" not in text and ":pw" not in text and "http://host/x in ~/a.toml" in text
    plain = document("plain")
    assert as_data(cleaned(plain)) == as_data(plain)
    assert cleaned({"by_kind": {"key": {"completed": 3}}}) == {"by_kind": {"key": {"completed": 3}}}  # a name, and no secret


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    save_file({"a": np.zeros((8, 4), np.float32), "b": np.ones(4, np.float32)}, weights)
    (tmp_path / "config.json").write_text("{}")
    found = facts.model_facts(tmp_path)
    assert found["name"] == tmp_path.name
    assert found["tensor_bytes"] == 4 * 36 and found["quantization"] == ["F32 100 %"]
    assert len(found["sha256"]) == 64
    gguf = tmp_path / "strange.gguf"
    gguf.write_bytes(weights.read_bytes())  # of a format that cannot be read: still the file's own digest
    assert facts.model_facts(gguf)["sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()


def test_a_model_that_is_not_here_has_its_name() -> None:
    assert facts.model_facts("nobody/has-this-model") == {"name": "nobody/has-this-model"}


def test_a_processor_is_described_from_the_kernels_files(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(
        "processor : 0\nmodel name : Best CPU @ 3 GHz\ncpu family : 6\nmodel : 1\nstepping : 2\ncpu cores : 4\n"
        "flags : fpu avx2 avx512_vnni amx_bf16 rdtscp hypervisor\n\nprocessor : 1\nmodel name : another\n"
    )
    (tmp_path / "meminfo").write_text("MemTotal:       16384 kB\n")
    cache = tmp_path / "cpus/cpu0/cache/index2"
    cache.mkdir(parents=True)
    for name, content in {"level": "2", "type": "Unified", "size": "1024K", "shared_cpu_list": "0-1,8"}.items():
        (cache / name).write_text(content + "\n")
    governor = tmp_path / "cpus/cpu0/cpufreq"
    governor.mkdir()
    (governor / "scaling_governor").write_text("powersave\n")
    found = cpu_facts(tmp_path, tmp_path / "cpus")
    assert found["cpu"] == "Best CPU @ 3 GHz" and found["virtual"]
    assert found["flags"] == ["avx2", "avx512_vnni", "amx_bf16"]
    assert found["caches"] == ["L2 1024K (3 CPUs)"]
    assert (found["governor"], found["cores_per_socket"], found["memory_bytes"]) == ("powersave", 4, 16 * 2**20)
    assert found["family_model_stepping"] == "6/1/2"


def test_a_machine_without_those_files_is_described_too(tmp_path: Path) -> None:
    found = cpu_facts(tmp_path, tmp_path)
    assert found["cpu"] and found["caches"] is None and found["governor"] is None and found["memory_bytes"] is None


def test_a_section_has_a_row_a_fact_with_units() -> None:
    machine = {"cpu": "A CPU", "memory_bytes": 2**30, "measured": {"read_bytes_s": 4.25e10, "cpus": [0, 1]}, "none": None, "empty": []}
    section = facts_section({"date": "today", "machine": machine, "server": {"command": ["vllm", "serve"], "port": 8000, "gc": False}})
    assert section.tables[0].rows == [
        ["run", "date", "today"],
        ["machine", "cpu", "A CPU"],
        ["", "memory", "1,024 MiB"],
        ["", "measured", "read 42.5 GB/s, cpus 0, 1"],
        ["server", "command", "vllm serve"],
        ["", "port", "8000"],
        ["", "gc", "no"],
    ]


def test_in_short_there_is_a_line_a_group() -> None:
    found = {"date": "today", "command": "octavo bench", "machine": {"cpu": "A CPU", "governor": "x", "measured": {"read_bytes_s": 4e10}}}
    assert facts_in_short(found | {"model": None, "seeds": {"a": 1, "b": 2}, "client": {"url": "u"}}) == [
        "run: date today, command octavo bench",
        "machine: cpu A CPU, measured read 40.0 GB/s",
        "seeds: a 1, b 2",
    ]
    assert facts_in_short({}) == []


def test_the_commit_is_told_inside_a_checkout_only(tmp_path: Path) -> None:
    assert facts._git_commit(tmp_path) is None
    assert "git_commit" in facts.collect(argv=["octavo"], rates=False)["software"]
    assert os.sep not in (facts.collect(argv=["octavo"], rates=False)["software"]["git_commit"] or "")
