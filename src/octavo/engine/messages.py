"""What crosses between a client and its engine process: msgpack, typed, never pickle."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np

from octavo.engine.info import EngineInfo
from octavo.outputs import EngineCoreOutputs, EngineStats
from octavo.request import EngineCoreRequest


class Start(msgspec.Struct, tag="start"):
    """The first message: load this model."""

    args: dict[str, Any]
    """Of EngineArgs."""
    launched: float
    """time.monotonic when the process was asked for."""


class Add(msgspec.Struct, tag="add"):
    """A request to serve."""

    request: EngineCoreRequest


class Abort(msgspec.Struct, tag="abort"):
    """Requests nobody wants any more; unknown ids are ignored."""

    request_ids: list[str]


Question = Literal["kv_usage", "reset_prefix_cache", "steps"]
"""What a client may ask, under the name of the EngineCore method that answers."""


class Ask(msgspec.Struct, tag="ask"):
    """A question, answered between two steps with an Answer of the same id; it brings about no step."""

    ask_id: int
    question: Question
    arguments: list[Any] = []
    """Of that method."""


class Stop(msgspec.Struct, tag="stop"):
    """End the process; running requests are dropped."""


class Ready(msgspec.Struct, tag="ready"):
    """The model is loaded."""

    info: EngineInfo
    stats: EngineStats


class Failed(msgspec.Struct, tag="failed"):
    """The engine could not start, or cannot go on; its last message.

    ``error`` names the class in octavo.errors that the client raises.
    """

    message: str
    error: str = "EngineDeadError"
    field: str | None = None


class Step(msgspec.Struct, tag="step"):
    """What one step brought."""

    outputs: EngineCoreOutputs


class Answer(msgspec.Struct, tag="answer"):
    """To the Ask of this id, and the engine after it."""

    ask_id: int
    value: Any
    stats: EngineStats
    error: str = ""
    """Why there is no value."""


ToEngine = Start | Add | Abort | Ask | Stop
FromEngine = Ready | Failed | Step | Answer

encode = msgspec.msgpack.Encoder(enc_hook=np.ndarray.tobytes).encode
"""An array crosses as its bytes; who reads it knows its type."""
decode_to_engine = msgspec.msgpack.Decoder(ToEngine).decode
decode_from_engine = msgspec.msgpack.Decoder(FromEngine).decode

TO_ENGINE_SOCKET = "to-engine"
FROM_ENGINE_SOCKET = "from-engine"


def address(directory: str, socket: str) -> str:
    """ZeroMQ address of one of the two sockets in a client's private directory.

    Each is bound by its reader, so another process of the same user that connects can only send, never take a message away.
    """
    return f"ipc://{directory}/{socket}"
