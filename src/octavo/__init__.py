"""Octavo: an LLM serving engine.

    from octavo import LLM, SamplingParams

Names are imported when they are first used: importing ``octavo`` alone loads nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.config import AsyncEngineArgs, EngineArgs
    from octavo.engine.async_llm import AsyncLLMEngine
    from octavo.engine.llm import LLM
    from octavo.outputs import CompletionOutput, Logprob, RequestOutput
    from octavo.sampling_params import SamplingParams

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "AsyncEngineArgs",
    "AsyncLLMEngine",
    "CompletionOutput",
    "EngineArgs",
    "Logprob",
    "RequestOutput",
    "SamplingParams",
    "__version__",
]

_HOMES = {
    "LLM": "octavo.engine.llm",
    "AsyncEngineArgs": "octavo.config",
    "AsyncLLMEngine": "octavo.engine.async_llm",
    "CompletionOutput": "octavo.outputs",
    "EngineArgs": "octavo.config",
    "Logprob": "octavo.outputs",
    "RequestOutput": "octavo.outputs",
    "SamplingParams": "octavo.sampling_params",
}


def __getattr__(name: str) -> object:
    if (module := _HOMES.get(name)) is not None:
        return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")
