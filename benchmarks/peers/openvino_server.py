"""OpenVINO GenAI behind an OpenAI API, for comparison: GenAI brings an engine (paged attention, continuous batching) and no server.

As thin as it can be, so that what is measured is GenAI: POST /v1/completions (token ids or text, streamed or not), GET /v1/models,
GET /health. Greedy unless a temperature is given. The engine steps in a process of its own, because a step keeps the interpreter's lock
for its whole time. A streamed chunk holds the text of its own tokens alone, so a character that spans tokens comes as replacement
characters; usage counts exactly.

    venv-openvino/bin/python openvino_server.py models/smollm2-135m-instruct-ov-int8 --port 8164 --threads 2
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web
from tokenizers import Tokenizer


class Ask(NamedTuple):
    """To the engine: begin this request, or forget it where ``token_ids`` is None."""

    request_id: int
    token_ids: list[int] | None = None
    max_tokens: int = 0
    ignore_eos: bool = False
    temperature: float = 0.0


class Told(NamedTuple):
    """From the engine, of one request after one step."""

    request_id: int
    token_ids: list[int]
    finish_reason: str | None = None
    error: str = ""


def run_engine(conn: Connection, options: argparse.Namespace) -> None:
    """The engine's process: take what is asked, step, tell; until the other end is closed."""
    stepper = Stepper(make_pipeline(options))
    conn.send("ready")
    while True:
        while conn.poll(0 if stepper.live else None):
            if (refused := stepper.take(conn.recv())) is not None:
                conn.send([refused])
        if told := stepper.step():
            conn.send(told)


def make_pipeline(options: argparse.Namespace) -> Any:
    """GenAI's continuous batching, with its model loaded."""
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = options.num_kv_blocks
    scheduler.max_num_seqs = options.max_num_seqs
    scheduler.max_num_batched_tokens = options.max_num_batched_tokens
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = False
    properties = {"INFERENCE_NUM_THREADS": options.threads, "INFERENCE_PRECISION_HINT": options.precision}
    return genai.ContinuousBatchingPipeline(options.model, scheduler, "CPU", properties)


class Stepper:
    """Requests on their way through a pipeline."""

    def __init__(self, pipeline: Any) -> None:
        import openvino_genai

        self._genai = openvino_genai
        self.live: dict[int, Any] = {}
        """GenAI's handle of each, by request."""
        self._pipeline = pipeline
        config = pipeline.get_config()
        self._stops = set(config.stop_token_ids) | {config.eos_token_id}

    def take(self, ask: Ask) -> Told | None:
        """Begin a request, or forget one; what there is to tell of one that GenAI does not take."""
        if ask.token_ids is None:
            if (handle := self.live.pop(ask.request_id, None)) is not None:
                handle.cancel()
            return None
        try:
            self._begin(ask)
        except Exception as error:  # GenAI raises RuntimeError, TypeError and its own kinds for requests it cannot take
            return Told(ask.request_id, [], error=str(error))
        return None

    def step(self) -> list[Told]:
        """One step, and what it brought."""
        self._pipeline.step()
        return [told for request_id in list(self.live) if (told := self._read(request_id)) is not None]

    def _begin(self, ask: Ask) -> None:
        import numpy as np
        import openvino as ov

        config = self._genai.GenerationConfig()
        config.max_new_tokens = ask.max_tokens
        config.ignore_eos = ask.ignore_eos
        if not ask.ignore_eos:
            config.stop_token_ids = self._stops
        if ask.temperature > 0:
            config.do_sample, config.temperature = True, ask.temperature
        prompt = ov.Tensor(np.array([ask.token_ids], dtype=np.int64))
        self.live[ask.request_id] = self._pipeline.add_request(ask.request_id, prompt, config)

    def _read(self, request_id: int) -> Told | None:
        handle, tokens, reason = self.live[request_id], [], None
        while handle.can_read():
            for output in handle.read().values():
                tokens += output.generated_ids
                if output.finish_reason != self._genai.GenerationFinishReason.NONE:
                    reason = output.finish_reason.name.lower()
        if handle.get_status() == self._genai.GenerationStatus.RUNNING:
            return Told(request_id, tokens) if tokens else None
        del self.live[request_id]
        ignored = handle.get_status() == self._genai.GenerationStatus.IGNORED
        return Told(request_id, tokens, reason or "length", "no room in the KV cache" if ignored else "")


class Engine:
    """The engine's process, seen from the event loop."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Start it and wait until it has loaded the model."""
        context = multiprocessing.get_context("spawn")
        self._conn, theirs = context.Pipe()
        process = context.Process(target=run_engine, args=(theirs, options), daemon=True)
        process.start()
        theirs.close()
        self._conn.recv()
        self._queues: dict[int, asyncio.Queue[Told]] = {}
        self._ids = itertools.count(1)

    def listen(self) -> None:
        """From now on, in this event loop."""
        asyncio.get_running_loop().add_reader(self._conn.fileno(), self._receive)

    async def generate(self, token_ids: list[int], max_tokens: int, ignore_eos: bool, temperature: float) -> AsyncGenerator[Told, None]:
        """What the engine tells of a new request until it ends. A caller that stops listening ends it."""
        request_id = next(self._ids)
        queue = self._queues[request_id] = asyncio.Queue()
        self._conn.send(Ask(request_id, token_ids, max_tokens, ignore_eos, temperature))
        told = None
        try:
            while told is None or (told.finish_reason is None and not told.error):
                told = await queue.get()
                yield told
        finally:
            del self._queues[request_id]
            if told is None or (told.finish_reason is None and not told.error):
                self._conn.send(Ask(request_id))

    def _receive(self) -> None:
        try:
            while self._conn.poll():
                for told in self._conn.recv():
                    if told.request_id in self._queues:
                        self._queues[told.request_id].put_nowait(told)
        except EOFError:
            print("the engine's process ended", flush=True)
            os._exit(1)


class Api:
    """The routes."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, model: str) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._model = model

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self._model, "object": "model"}]})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
        except json.JSONDecodeError:
            return _refused(400, "the body is not JSON")
        if body.get("model") != self._model:
            return _refused(404, f"model = {body.get('model')!r}: there is {self._model}")
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            prompt = self._tokenizer.encode(prompt, add_special_tokens=False).ids
        if not isinstance(prompt, list) or not prompt or not all(isinstance(token, int) for token in prompt):
            return _refused(400, "prompt: it must be text or a list of token ids, and not empty")
        told = self._engine.generate(
            prompt, int(body.get("max_tokens") or 16), bool(body.get("ignore_eos")), float(body.get("temperature") or 0)
        )
        async with contextlib.aclosing(told):
            if body.get("stream"):
                return await self._stream(request, body, len(prompt), told)
            return await self._whole(len(prompt), told)

    async def _whole(self, prompt_tokens: int, told: AsyncIterator[Told]) -> web.Response:
        tokens: list[int] = []
        async for each in told:
            if each.error:
                return _refused(503, each.error)
            tokens += each.token_ids
        event = self._event(tokens, each.finish_reason) | {"usage": _usage(prompt_tokens, len(tokens))}
        return web.json_response(event)

    async def _stream(
        self, request: web.Request, body: dict[str, Any], prompt_tokens: int, told: AsyncIterator[Told]
    ) -> web.StreamResponse:
        options = body.get("stream_options") or {}
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        total = 0
        with contextlib.suppress(ConnectionResetError):  # whoever asked has gone
            async for each in told:
                total += len(each.token_ids)
                event = {"error": {"message": each.error, "code": 503}} if each.error else self._event(each.token_ids, each.finish_reason)
                if options.get("continuous_usage_stats"):
                    event["usage"] = _usage(prompt_tokens, total)
                await response.write(f"data: {json.dumps(event)}\n\n".encode())
            if options.get("include_usage"):
                event = {"object": "text_completion", "model": self._model, "choices": [], "usage": _usage(prompt_tokens, total)}
                await response.write(f"data: {json.dumps(event)}\n\n".encode())
            await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
        return response

    def _event(self, tokens: list[int], finish_reason: str | None) -> dict[str, Any]:
        text = self._tokenizer.decode(tokens, skip_special_tokens=False)
        choice = {"index": 0, "text": text, "token_ids": tokens, "finish_reason": finish_reason}
        return {"object": "text_completion", "created": int(time.time()), "model": self._model, "choices": [choice]}


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of an exported model, with its tokenizer.json")
    parser.add_argument("--port", type=int, default=8164)
    parser.add_argument("--served-model-name", default="smollm2")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as GenAI likes")
    parser.add_argument("--precision", default="bf16", help="arithmetic of activations (INFERENCE_PRECISION_HINT)")
    parser.add_argument("--num-kv-blocks", type=int, default=640, help="of 32 tokens each")
    parser.add_argument("--max-num-seqs", type=int, default=64)
    parser.add_argument("--max-num-batched-tokens", type=int, default=256, help="of one step; longer prompts are computed in chunks")
    return parser.parse_args()


def main() -> None:
    options = read_options()
    engine = Engine(options)
    api = Api(engine, Tokenizer.from_file(str(Path(options.model) / "tokenizer.json")), options.served_model_name)

    async def start(_: web.Application) -> None:
        engine.listen()

    app = web.Application(client_max_size=2**26)
    app.on_startup.append(start)
    app.add_routes([web.get("/health", api.health), web.get("/v1/models", api.models), web.post("/v1/completions", api.completions)])
    web.run_app(app, host="127.0.0.1", port=options.port, access_log=None, print=None, shutdown_timeout=2)


if __name__ == "__main__":
    main()
