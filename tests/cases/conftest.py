"""Servers for the cases: one whose words are given, one that runs a real, small, random model in fp32."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from octavo.config import AsyncEngineArgs
from support.live_server import LiveServer
from support.outputs import OUTPUTS, TOKENIZER
from support.scripted import SCRIPTED, Script
from support.tiny_server import TinyServer
from support.toy_tokenizer import write_model


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Says what the seed asks for. 3 places in the batch, 16 tokens a step of 2 ms: so that requests wait, and prefill in chunks."""
    script = Script(outputs=list(OUTPUTS.values()), step_seconds=0.002)
    model = write_model(tmp_path_factory.mktemp("scripted"), script, TOKENIZER)
    args = AsyncEngineArgs(
        model=model, runner_cls=SCRIPTED, max_num_seqs=3, max_num_batched_tokens=16, num_gpu_blocks_override=64, max_model_len=1000
    )
    server = LiveServer(args)
    yield server
    server.close()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyServer]:
    started = TinyServer.start(tmp_path_factory.mktemp("tiny"))
    yield started
    started.server.close()
