"""A KV policy of an installed package in a served engine: what it does wrong ends one request."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.live_server import LiveServer
from support.outputs import SEEDS

MODULE = """
from octavo.kv.placement.paged import PagedPlacement

class Superstitious(PagedPlacement):
    def allocate(self, owner, count, reserve):
        if reserve == 13:
            raise ValueError("thirteen")
        return super().allocate(owner, count, reserve)
"""


@pytest.fixture
def server(start: Callable[..., LiveServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveServer:
    metadata = tmp_path / "superstition-2.0.dist-info"
    metadata.mkdir()
    (tmp_path / "superstition.py").write_text(MODULE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: superstition\nVersion: 2.0\n")
    (metadata / "entry_points.txt").write_text("[octavo.kv]\nplacement.lucky = superstition:Superstitious\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return start(num_gpu_blocks_override=64, kv_placement="lucky")


def test_the_client_is_told_and_the_others_are_served(server: LiveServer) -> None:
    def ask(max_tokens: int) -> tuple[int, dict]:
        body = {"prompt": [5] * 100, "max_tokens": max_tokens, "seed": SEEDS["long"], "ignore_eos": True}
        response = server.post("/v1/completions", body)
        return response.status_code, response.json()

    assert ask(20)[0] == 200
    status, body = ask(105)  # 204 tokens are stored: in thirteen blocks
    assert status == 500
    assert "kv_placement = 'lucky': the plugin superstition:Superstitious, of superstition 2.0, raised ValueError('thirteen')" in str(body)
    assert ask(20)[0] == 200
    report = server.client.get("/admin/kv").json()
    assert report["policy"]["placement"] == "lucky" and report["owners"] == []
    server.assert_idle()
