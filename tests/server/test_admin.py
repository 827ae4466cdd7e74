"""GET /admin/kv and POST /admin/kv/reset over HTTP."""

from __future__ import annotations

from collections.abc import Callable

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


def test_an_api_key_guards_both(start: Callable[..., LiveServer]) -> None:
    server = start(settings={"api_keys": ("secret",)}, num_gpu_blocks_override=16)
    for headers, expected in (({"Authorization": "Bearer wrong"}, 401), ({}, 200)):
        assert server.client.get("/admin/kv", headers=headers).status_code == expected
        assert server.client.post("/admin/kv/reset", headers=headers).status_code == expected
