"""What a real server counts of a workload's prompts: as many tokens as were planned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.bench.load.run import offer
from octavo.bench.load.target import Target
from octavo.bench.workload.file import parse_workload
from octavo.bench.workload.tokens import Tokens
from octavo.config import AsyncEngineArgs
from octavo.tokenizer.load import load_tokenizer
from support.live_server import LiveServer

pytestmark = pytest.mark.slow

LOAD = {
    "name": "rag",
    "num_requests": 8,
    "arrivals": {"process": "closed", "concurrency": 4},
    "tenants": [{"name": "a"}, {"name": "b"}],
    "requests": [
        {
            "name": "question",
            "prompt": "text",
            "shared_prefix": {"tokens": 64},
            "prompt_tokens": {"distribution": "uniform", "low": 3, "high": 60},
            "output_tokens": {"distribution": "uniform", "low": 2, "high": 6},
            "max_tokens": 6,
        }
    ],
}


@pytest.fixture(params=["smollm2_path", "gemma3_path"])
def model(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture
def server(model: Path) -> Iterator[LiveServer]:
    live = LiveServer(AsyncEngineArgs(model=str(model), max_model_len=512, num_gpu_blocks_override=256, max_num_seqs=8))
    yield live
    live.close()


def test_a_server_counts_as_many_tokens_as_were_planned(model: Path, server: LiveServer) -> None:
    """Ids: exactly. Text: and a BOS if the model has one. Chat: and what the template writes, the same of every prompt."""
    tokens, load = Tokens.of(load_tokenizer(model)), parse_workload(LOAD, "rag")
    ways = [(False, "/v1/completions", {0}), (True, "/v1/completions", {int(tokens.tokenizer.add_bos)})]
    if tokens.tokenizer.chat_template is not None:
        ways.append((True, "/v1/chat/completions", None))
    for as_text, endpoint, beside in ways:
        requests = load.draw(tokens, as_text=as_text)
        run = offer(Target(server.url, "scripted", endpoint=endpoint), requests, concurrency=load.arrivals.in_flight)
        assert [record.message for record in run.records if not record.completed] == []
        usages = [record.usage for record in run.records if record.usage is not None]
        assert [usage.completion_tokens for usage in usages] == [request.output_tokens for request in requests]
        more = {usage.prompt_tokens - len(request.prompt_token_ids) for usage, request in zip(usages, requests, strict=True)}
        assert more == beside if beside is not None else len(more) == 1
        assert any(usage.cached_tokens for usage in usages), "prompts of one tenant begin alike"


def test_bm_13_a_repeated_run_hits_the_prefix_cache_and_a_salt_misses_it(model: Path, server: LiveServer) -> None:
    tokens, load = Tokens.of(load_tokenizer(model)), parse_workload(LOAD | {"num_requests": 4}, "rag")
    target = Target(server.url, "scripted")

    def cached(salt: str) -> int:
        run = offer(target, load.draw(tokens, salt=salt), concurrency=1)
        return sum(record.usage.cached_tokens or 0 for record in run.records if record.usage is not None)

    first, again, salted = cached(""), cached(""), cached("another")
    assert again > first, "all of them were there"
    assert salted == first, "only what the prompts of one run share"
