"""Keyword arguments of ``LLM`` to EngineArgs: what vLLM's users pass, and what has no effect here."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import Any

from octavo.config import EngineArgs
from octavo.errors import InvalidRequestError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Foreign:
    """An argument of vLLM's without a meaning here: its harmless values, and whether others are refused or warned about."""

    harmless: tuple[Any, ...]
    refused: bool
    why: str


def _refused(*harmless: Any, why: str) -> _Foreign:
    return _Foreign(harmless, True, why)


def _ignored(*harmless: Any, why: str) -> _Foreign:
    return _Foreign(harmless, False, why)


_ONE_DEVICE = "this build runs on one device"
_NO_GPU = "it concerns GPUs"

FOREIGN: dict[str, _Foreign] = {
    "tensor_parallel_size": _refused(1, why=_ONE_DEVICE),
    "pipeline_parallel_size": _refused(1, why=_ONE_DEVICE),
    "data_parallel_size": _refused(1, why=_ONE_DEVICE),
    "enable_lora": _refused(False, None, why="adapters are not supported"),
    "speculative_config": _refused(None, why="speculative decoding is not supported"),
    "skip_tokenizer_init": _refused(False, why="the tokenizer is always loaded"),
    "hf_overrides": _refused(None, {}, why="the model's own config holds"),
    "rope_scaling": _refused(None, {}, why="the model's own config holds"),
    "revision": _refused(None, "main", why="only a model's main revision is fetched"),
    "device": _refused(None, "auto", "cpu", why="this build runs on CPUs"),
    "trust_remote_code": _ignored(False, why="code from a model's repository is never run"),
    "swap_space": _ignored(0, why="preempted requests are recomputed, unless preemption_mode is 'swap'"),
    "cpu_offload_gb": _ignored(0, why=_NO_GPU),
    "disable_custom_all_reduce": _ignored(False, why=_NO_GPU),
    "compilation_config": _ignored(None, why="a model is traced at load, without options"),
    "distributed_executor_backend": _ignored(None, why=_ONE_DEVICE),
    "disable_log_stats": _ignored(True, False, why="statistics are read, not logged"),
    "max_seq_len_to_capture": _ignored(why="any shape runs at full speed"),
    "tokenizer_mode": _ignored("auto", why="there is one tokenizer of each kind"),
    "load_format": _ignored("auto", why="the file says what it is"),
    "download_dir": _ignored(None, why="OCTAVO_HOME says where fetched models lie"),
    "hf_token": _ignored(None, why="the environment's HF_TOKEN is used"),
}


def engine_args(model: str, arguments: dict[str, Any]) -> EngineArgs:
    """EngineArgs from keyword arguments.

    Raises:
        InvalidRequestError: an argument has no effect on this back end and a value that matters, or is out of bounds.
        TypeError: an argument that neither Octavo nor vLLM has.
    """
    known = {setting.name for setting in dataclasses.fields(EngineArgs)}
    for name, value in arguments.items():
        if (foreign := FOREIGN.get(name)) is not None and not (name == "swap_space" and arguments.get("preemption_mode") == "swap"):
            _judge(name, value, foreign)
        elif name not in known:
            raise TypeError(f"LLM() got an unexpected argument {name!r}")
    return EngineArgs(model=model, **{name: value for name, value in arguments.items() if name in known})


def _judge(name: str, value: Any, foreign: _Foreign) -> None:
    if value in foreign.harmless:
        return
    if foreign.refused:
        raise InvalidRequestError(f"{name} = {value!r}: {foreign.why}", field=name)
    logger.warning("%s = %r has no effect: %s", name, value, foreign.why)
