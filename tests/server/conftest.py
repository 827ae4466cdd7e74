"""Servers that tests share: each is the real HTTP server over the real engine, with a runner that needs no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from octavo.config import AsyncEngineArgs
from support.live_server import LiveServer
from support.outputs import OUTPUTS, TOKENIZER
from support.scripted import RANDOM, SCRIPTED, Script
from support.toy_tokenizer import write_model


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LiveServer]]:
    """Starts a server with a script and engine arguments; all end with the session."""
    servers: list[LiveServer] = []

    def start(
        script: Script | None = None,
        runner: str = SCRIPTED,
        settings: dict[str, Any] | None = None,
        with_template: bool = True,
        **args: Any,
    ) -> LiveServer:
        folder = tmp_path_factory.mktemp("model")
        model = write_model(folder, script or Script(outputs=list(OUTPUTS.values())), TOKENIZER)
        if not with_template:
            (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
        servers.append(LiveServer(AsyncEngineArgs(model=model, runner_cls=runner, **args), **(settings or {})))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def server(start: Callable[..., LiveServer]) -> LiveServer:
    """Says what the seed asks for."""
    return start()


@pytest.fixture(scope="session")
def slow(start: Callable[..., LiveServer]) -> LiveServer:
    """The same with steps of 20 ms and two places in the batch, 16 tokens a step."""
    script = Script(outputs=list(OUTPUTS.values()), step_seconds=0.02)
    return start(script, max_num_seqs=2, max_num_batched_tokens=16)


@pytest.fixture(scope="session")
def sampling(start: Callable[..., LiveServer]) -> LiveServer:
    """Samples from made-up logits, with two end-of-sequence tokens."""
    return start(Script(vocab_size=265, eos_token_ids=[0, 77]), runner=RANDOM)
