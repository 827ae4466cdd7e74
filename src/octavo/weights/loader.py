"""From a source's tensors to the parameters a model asks for: names, shapes, and what --dtype and --quantization change."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from octavo.errors import ModelFileError
from octavo.ops.spec import Parameter
from octavo.weights.dequantize import dequantize
from octavo.weights.formats import FORMATS, Weight, WeightFormat
from octavo.weights.quantize import ENCODERS
from octavo.weights.source import WeightSource
from octavo.weights.tensor import listed

logger = logging.getLogger(__name__)

_CHUNK = 1 << 22
"""Elements converted at a time: bounds the fp32 copies."""
_EXPECTED_UNUSED = re.compile(
    r"rope_freqs\.weight|output\.weight|lm_head\.weight|.*\.(k|v|kv|output)_scale|.*rotary_emb\.inv_freq|(model\.)?(vision_tower|multi_modal_projector)\..*"
)
"""Tensors that text models leave out: rotary tables, a tied head's copy, towers of other senses."""


def load_weights(
    source: WeightSource, parameters: Sequence[Parameter], dtype: str = "auto", quantization: str | None = None
) -> dict[str, Weight]:
    """The parameters' weights by canonical name.

    Vectors become F32 (from a Hugging Face folder plus ``Parameter.offset``). A matrix stays as stored, except:

    - dtype "float32": every matrix becomes F32. "bfloat16": F32 and F16 matrices become BF16.
    - quantization "int8": F32, F16 and BF16 matrices become Q8_0. "int4": they become Q4_1 (affine), but the embedding and
      the head become Q8_0, as 4 bits there cost the most quality for the least memory.
      A matrix whose rows are no multiple of 32 long cannot be quantized: it stays, which is logged. So is a model that has no
      matrix left to quantize.

    Raises:
        ModelFileError: a tensor is missing, of another shape, of a type Octavo does not run, or cannot be quantized.
    """
    names = {parameter.name: _file_name(source, parameter) for parameter in parameters}
    _check_present(source, list(names.values()))
    for parameter in parameters:
        _check_shape(source, names[parameter.name], parameter)
    weights = {}
    for parameter in parameters:
        stored = source.weight(names[parameter.name], parameter.name)
        try:
            weights[parameter.name] = _converted(stored, parameter, source.kind, dtype, quantization)
        except ValueError as error:
            raise ModelFileError(f"{source.path}: tensor {names[parameter.name]!r}: {error}") from error
    _log_unused(source, set(names.values()))
    matrices = [source.weight(names[parameter.name], parameter.name) for parameter in parameters if parameter.is_matrix]
    if quantization is not None and all(stored.format.quantized for stored in matrices):
        logger.warning("quantization = %s has no effect: the weights of %s are quantized already", quantization, source.path)
    return weights


def _file_name(source: WeightSource, parameter: Parameter) -> str:
    return parameter.gguf if source.kind == "gguf" else parameter.hf


def _check_present(source: WeightSource, wanted: list[str]) -> None:
    present = set(source.names())
    missing = [name for name in wanted if name not in present]
    if len(missing) == 1:
        source.info(missing[0])  # Says whether it is absent or of an unsupported type.
    if missing:
        raise ModelFileError(f"{source.path}: {len(missing)} tensors that the model needs are missing: {listed(missing)}")


def _check_shape(source: WeightSource, file_name: str, parameter: Parameter) -> None:
    info = source.info(file_name)
    if info.shape != parameter.shape:
        raise ModelFileError(f"{info.file.path}: tensor {file_name!r} has the shape {info.shape}; the model needs {parameter.shape}")


def _converted(stored: Weight, parameter: Parameter, kind: str, dtype: str, quantization: str | None) -> Weight:
    if not parameter.is_matrix:
        return _vector(stored, parameter.offset if kind == "hf" else 0.0)
    target = _target(stored, parameter, dtype, quantization)
    return stored if target is stored.format else _encode(stored, target)


def _vector(stored: Weight, offset: float) -> Weight:
    values = dequantize(stored)
    if offset:
        values = values + np.float32(offset)
    return replace(stored, format=FORMATS["F32"], data=np.ascontiguousarray(values).view(np.uint8))


def _target(stored: Weight, parameter: Parameter, dtype: str, quantization: str | None) -> WeightFormat:
    """The format a matrix is to have."""
    if dtype == "float32":
        return FORMATS["F32"]
    if stored.format.quantized:
        return stored.format
    if quantization is not None:
        target = FORMATS["Q4_1" if quantization == "int4" and "vocab" not in parameter.axes else "Q8_0"]
        if stored.shape[-1] % target.block == 0:
            return target
        logger.info("%s stays %s: its rows of %d are no multiple of %d", stored.name, stored.format.name, stored.shape[-1], target.block)
    return FORMATS["BF16"] if dtype == "bfloat16" else stored.format


def _encode(stored: Weight, target: WeightFormat) -> Weight:
    """A matrix in another format, converted a few rows at a time."""
    rows, columns = stored.shape
    encode = ENCODERS[target.name]
    data = np.empty((rows, target.row_bytes(columns)), np.uint8)
    step = math.ceil(_CHUNK / columns)
    for first in range(0, rows, step):
        part = stored.data[first : first + step]
        values = dequantize(replace(stored, shape=(len(part), columns), data=part))
        data[first : first + step] = encode(values)
    return replace(stored, format=target, data=data)


def _log_unused(source: WeightSource, used: set[str]) -> None:
    unused = [name for name in source.names() if name not in used]
    if unused:
        logger.debug("%s: unused tensors: %s", source.path, ", ".join(unused))
    if surprising := [name for name in unused if not _EXPECTED_UNUSED.fullmatch(name)]:
        logger.warning("%s: the model does not use %d tensors: %s", source.path, len(surprising), listed(surprising))
