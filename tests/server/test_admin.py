"""The operator's routes over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import pytest

from octavo import __version__
from octavo.engine.info import EngineInfo
from octavo.engine.step_log import StepRecord
from support.live_server import LiveServer
from support.outputs import SEEDS

BODY = {"prompt": [9] * 100, "max_tokens": 3, "seed": SEEDS["long"], "cache_salt": "admin"}


def cached_tokens(server: LiveServer) -> int:
    usage = server.post("/v1/completions", BODY).json()["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"]


def test_the_map_over_http(server: LiveServer) -> None:
    cached_tokens(server)
    report = server.client.get("/admin/kv").json()
    assert {"version", "policy", "groups", "owners", "steps"} <= report.keys()
    (group,) = report["groups"]
    assert {"name", "block_size", "slots", "efficiency", "fragmentation", "blocks"} <= group.keys()
    assert len(group["blocks"]) * group["block_size"] == group["slots"]["total"]
    assert group["blocks"].count(-2) * group["block_size"] == group["slots"]["cached"] > 0
    assert report["steps"][-1]["tokens"] == 1


def test_a_reset_makes_a_hit_a_miss(server: LiveServer) -> None:
    cached_tokens(server)
    assert cached_tokens(server) == 96
    assert server.post("/admin/kv/reset").json()["forgotten_blocks"] >= 6
    assert server.gauge("octavo_kv_slots_cached") == 0
    assert cached_tokens(server) == 0
    assert cached_tokens(server) == 96


def test_steps_over_http(server: LiveServer) -> None:
    cached_tokens(server)
    last = server.client.get("/admin/steps").json()
    assert last["steps"] == [] and last["lost"] == 0 and abs(last["now"] - time.time()) < 5
    cached_tokens(server)
    found = server.client.get(f"/admin/steps?after={last['last']}").json()
    assert [step["sampled"] for step in found["steps"]] == [1, 1, 1]
    record = msgspec.convert(found["steps"][0], StepRecord)
    assert (record.step, record.tokens) == (last["last"] + 1, 4)  # 96 tokens of the prompt are cached


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "", "9" * 19, "²"])
def test_a_bad_step_number_is_named(server: LiveServer, after: str) -> None:
    response = server.client.get("/admin/steps", params={"after": after})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "after" and "0 or more" in response.json()["error"]["message"]


def test_facts_about_the_engine(server: LiveServer) -> None:
    facts = server.client.get("/admin/engine").json()
    info = msgspec.convert(facts["info"], EngineInfo)
    assert facts["version"] == __version__
    assert (info.numerics_id, info.kv_windows, facts["settings"]["model"]) == ("scripted", [0], info.model)
    assert all(10_000_000 < facts["peak_memory_bytes"][process] < 2**40 for process in ("engine", "server"))


def test_an_api_key_guards_them(start: Callable[..., LiveServer]) -> None:
    server = start(settings={"api_keys": ("secret",)}, num_gpu_blocks_override=16)
    for headers, expected in (({"Authorization": "Bearer wrong"}, 401), ({}, 200)):
        for path in ("/admin/engine", "/admin/steps?after=0", "/admin/kv"):
            assert server.client.get(path, headers=headers).status_code == expected
        assert server.client.post("/admin/kv/reset", headers=headers).status_code == expected
