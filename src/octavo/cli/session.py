"""A model at the terminal: an engine for the length of a command, and answers printed as they come."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from octavo import envs
from octavo.cli.pull import ensure
from octavo.config import AsyncEngineArgs
from octavo.engine.async_llm import AsyncLLMEngine
from octavo.engine.processor import Prompt
from octavo.outputs import RequestOutput
from octavo.sampling_params import SamplingParams


class Session:
    """One engine, asked from synchronous code. Ctrl-C ends the answer that is being given, and raises KeyboardInterrupt."""

    def __init__(self, engine: AsyncLLMEngine, runner: asyncio.Runner) -> None:
        self.engine = engine
        self._runner = runner

    def print_answer(self, prompt: Prompt, params: SamplingParams) -> RequestOutput:
        """Print the answer as it comes; returns its last part. ``answer`` holds the text so far, whatever ends it."""
        self.answer = ""
        return self._runner.run(self._stream(prompt, params))

    async def _stream(self, prompt: Prompt, params: SamplingParams) -> RequestOutput:
        stream = self.engine.generate(prompt, params, output_kind="delta")
        try:
            async for output in stream:
                text = output.outputs[0].text
                self.answer += text
                sys.stdout.write(text)
                sys.stdout.flush()
        finally:
            await stream.aclose()
        return output


@contextmanager
def open_session(args: AsyncEngineArgs) -> Iterator[Session]:
    """A session with the model of ``args``; the log keeps quiet unless OCTAVO_LOG_LEVEL says otherwise."""
    if envs.log_level() == "info":
        logging.getLogger("octavo").setLevel(logging.WARNING)
    ensure(args.model)
    engine = AsyncLLMEngine.from_engine_args(args)
    try:
        with asyncio.Runner() as runner:
            yield Session(engine, runner)
    finally:
        engine.shutdown()
