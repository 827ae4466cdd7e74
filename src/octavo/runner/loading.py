"""From a model argument to a model with its weights, as stored; timed phase by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from octavo.config import KV_DTYPE_ALIASES, EngineArgs
from octavo.errors import InvalidRequestError, ModelFileError
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.gguf_config import from_gguf
from octavo.models.hf_config import from_hf
from octavo.models.registry import build
from octavo.ops.kv_format import NUMBER_BYTES, KVFormat
from octavo.weights import hub
from octavo.weights.dequantize import dequantize
from octavo.weights.formats import Weight
from octavo.weights.kv_scales import KVScales, read_kv_scales
from octavo.weights.loader import load_weights
from octavo.weights.source import WeightSource, open_source


class Phases:
    """Seconds spent in named phases of loading."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass
class LoadedModel:
    """A model and its weights as stored (views of the mapped file); close when they are packed."""

    path: Path
    config: ModelConfig
    model: Decoder
    weights: dict[str, Weight]
    weights_digest: str
    kv_scales: KVScales
    source: WeightSource
    phases: Phases = field(default_factory=Phases)

    def close(self) -> None:
        """Let go of the file; the weights are invalid from here on."""
        self.weights = {}
        self.source.close()


def load_model(args: EngineArgs) -> LoadedModel:
    """Resolve, open and map ``args.model``. Raises ModelFileError or InvalidRequestError."""
    phases = Phases()
    with phases("open"):
        path = hub.resolve(args.model)
        source = open_source(path)
        config = read_config(source)
        with _blaming(source.path):
            model = build(config)
    with phases("read weights"):
        weights = load_weights(source, model.parameters(), args.dtype, args.quantization)
    with phases("digest"):
        digest = source.digest()
    return LoadedModel(path, config, model, weights, digest, read_kv_scales(source, config.num_layers), source, phases)


def read_config(source: WeightSource) -> ModelConfig:
    """The config that a model's own files state. Raises ModelFileError naming the file and what is wrong with it."""
    with _blaming(source.path):
        return from_hf(source.config) if source.kind == "hf" else _read_gguf_config(source)


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Errors of reading a model's description, as the fault of the file at ``path``."""
    try:
        yield
    except ModelFileError as error:
        if str(error).startswith(str(path)):
            raise
        raise ModelFileError(f"{path}: {error}") from error
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path}: its description of the model is malformed: {type(error).__name__}: {error}") from error


def _read_gguf_config(source: WeightSource) -> ModelConfig:
    names = set(source.names())

    def tensor_shape(name: str) -> tuple[int, ...] | None:
        return source.weight(name, name).shape if name in names else None

    factors = dequantize(source.weight("rope_freqs.weight", "rope_freqs")) if "rope_freqs.weight" in names else None
    return from_gguf(source.metadata, tensor_shape, factors)


def context_length(args: EngineArgs, config: ModelConfig) -> int:
    """Most tokens of one sequence. Raises InvalidRequestError when more is asked than the model was made for."""
    limit = config.max_position_embeddings
    if args.max_model_len is not None and args.max_model_len > limit:
        raise InvalidRequestError(
            f"max_model_len = {args.max_model_len}: the model was made for at most {limit} tokens", field="max_model_len"
        )
    return args.max_model_len or limit


def kv_dtype(args: EngineArgs) -> str:
    """The type that K and V are stored in: one of octavo.ops.kv_format.NUMBER_BYTES."""
    if args.kv_cache_dtype == "auto":
        return "fp32" if args.dtype == "float32" else "bf16"
    return KV_DTYPE_ALIASES.get(args.kv_cache_dtype, args.kv_cache_dtype)


def kv_format(args: EngineArgs, scales: KVScales | None = None) -> KVFormat:
    """How K and V are stored, with ``scales`` of the checkpoint, where the mode has use for them."""
    dtype = kv_dtype(args)
    bf16_products = args.dtype != "float32" and dtype not in ("fp16", "fp32")
    if NUMBER_BYTES[dtype] > 1:
        return KVFormat(dtype, bf16_products=bf16_products)
    mode = args.kv_scales if args.kv_scales != "auto" else "dynamic" if dtype == "int8" else "guarded"
    return KVFormat(dtype, mode, scales.pairs() if scales and mode != "dynamic" else (), bf16_products)
