"""From file tensors to parameters: names, shapes, --dtype and --quantization."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import gguf.quants
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from octavo.errors import ModelFileError
from octavo.ops.spec import Parameter
from octavo.weights.dequantize import dequantize
from octavo.weights.formats import Weight
from octavo.weights.loader import load_weights
from octavo.weights.report import bytes_by_format, tensor_facts
from octavo.weights.source import WeightSource, open_source

RNG = np.random.default_rng(3)
SHAPES = {"embed": (64, 32), "q": (48, 32), "odd": (4, 40), "norm": (32,)}
VALUES = {name: RNG.normal(0, 0.1, shape).astype(np.float32) for name, shape in SHAPES.items()}
AXES = {"embed": ("vocab", "embed"), "q": ("heads", "embed"), "odd": ("mlp", "embed"), "norm": ("embed",)}
PARAMETERS = [
    Parameter(name, shape, AXES[name], f"{name}.gguf", f"model.{name}", offset=1.0 if name == "norm" else 0.0)
    for name, shape in SHAPES.items()
]  # fmt: skip


@pytest.fixture
def stored_as(make_gguf: Callable[..., Path]) -> Callable[..., WeightSource]:
    """A GGUF source whose matrices are of the given type ("odd" too, where its rows allow), its norm F32."""

    def make(kind: str) -> WeightSource:
        def kind_of(name: str) -> str:
            fits = kind in ("F32", "F16", "BF16") or name != "odd"
            return kind if fits and name != "norm" else "F32"

        return open_source(make_gguf({f"{name}.gguf": (kind_of(name), VALUES[name]) for name in SHAPES}))

    return make


def formats(weights: dict[str, Weight]) -> dict[str, str]:
    return {name: weight.format.name for name, weight in weights.items()}


@pytest.mark.parametrize(
    ("kind", "dtype", "quantization", "expected"),
    [
        ("F32", "auto", None, {"embed": "F32", "q": "F32", "odd": "F32"}),
        ("F16", "auto", None, {"embed": "F16", "q": "F16", "odd": "F16"}),
        ("BF16", "auto", None, {"embed": "BF16", "q": "BF16", "odd": "BF16"}),
        ("Q4_0", "auto", None, {"embed": "Q4_0", "q": "Q4_0", "odd": "F32"}),
        ("F32", "bfloat16", None, {"embed": "BF16", "q": "BF16", "odd": "BF16"}),
        ("F16", "bfloat16", None, {"embed": "BF16", "q": "BF16", "odd": "BF16"}),
        ("Q4_0", "bfloat16", None, {"embed": "Q4_0", "q": "Q4_0", "odd": "BF16"}),
        ("F16", "float32", None, {"embed": "F32", "q": "F32", "odd": "F32"}),
        ("Q4_0", "float32", None, {"embed": "F32", "q": "F32", "odd": "F32"}),
        ("F16", "auto", "int8", {"embed": "Q8_0", "q": "Q8_0", "odd": "F16"}),
        ("BF16", "auto", "int4", {"embed": "Q8_0", "q": "Q4_1", "odd": "BF16"}),
        ("F32", "bfloat16", "int4", {"embed": "Q8_0", "q": "Q4_1", "odd": "BF16"}),
        ("Q4_0", "auto", "int8", {"embed": "Q4_0", "q": "Q4_0", "odd": "F32"}),
    ],
)
def test_formats_follow_dtype_and_quantization(
    stored_as: Callable[..., WeightSource], kind: str, dtype: str, quantization: str | None, expected: dict[str, str]
) -> None:
    weights = load_weights(stored_as(kind), PARAMETERS, dtype, quantization)
    assert formats(weights) == {**expected, "norm": "F32"}
    tolerance = {"Q4_0": 0.06, "Q4_1": 0.03, "Q8_0": 0.003, "BF16": 0.003}
    for name, weight in weights.items():
        assert (weight.name, weight.shape) == (name, SHAPES[name])
        worst = max(tolerance.get(weight.format.name, 0.0003), tolerance.get(kind, 0))
        assert np.abs(dequantize(weight) - VALUES[name]).max() <= worst


def test_auto_leaves_the_bytes_in_the_file(stored_as: Callable[..., WeightSource]) -> None:
    source = stored_as("Q4_0")
    loaded = load_weights(source, PARAMETERS)["q"].data
    assert np.shares_memory(loaded, source.weight("q.gguf", "q").data)


def test_float32_is_the_dequantized_weight_exactly(stored_as: Callable[..., WeightSource], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.weights.loader._CHUNK", 5 * 32)  # Several chunks, the last not full.
    loaded = load_weights(stored_as("Q4_0"), PARAMETERS, "float32")["q"]
    kind = GGMLQuantizationType.Q4_0
    assert np.array_equal(dequantize(loaded), gguf.quants.dequantize(gguf.quants.quantize(VALUES["q"], kind), kind))


def test_matrix_that_cannot_be_quantized_is_logged(stored_as: Callable[..., WeightSource], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "octavo.weights.loader"):
        load_weights(stored_as("F16"), PARAMETERS, "auto", "int8")
    assert [record.getMessage() for record in caplog.records] == ["odd stays F16: its rows of 40 are no multiple of 32"]


@pytest.fixture
def folder(make_safetensors: Callable[..., Path]) -> Callable[..., WeightSource]:
    def make(**changes: tuple[str, tuple[int, ...], bytes] | None) -> WeightSource:
        tensors = {f"model.{n}": ("F16", SHAPES[n], v.astype(np.float16).tobytes()) for n, v in VALUES.items()}
        for name, change in changes.items():
            tensors.pop(f"model.{name}", None)
            if change is not None:
                tensors[f"model.{name}"] = change
        return open_source(make_safetensors(tensors).parent)

    return make


def test_folder_vectors_become_f32_and_get_their_offset(
    folder: Callable[..., WeightSource], stored_as: Callable[..., WeightSource]
) -> None:
    norm = load_weights(folder(), PARAMETERS)["norm"]
    assert norm.format.name == "F32"
    assert np.array_equal(norm.data.view(np.float32), VALUES["norm"].astype(np.float16).astype(np.float32) + np.float32(1))
    from_gguf = load_weights(stored_as("F16"), PARAMETERS)["norm"]
    assert np.array_equal(from_gguf.data.view(np.float32), VALUES["norm"])


def test_missing_tensors_are_listed(folder: Callable[..., WeightSource]) -> None:
    with pytest.raises(ModelFileError, match=r"2 tensors that the model needs are missing: model\.q, model\.norm"):
        load_weights(folder(q=None, norm=None), PARAMETERS)
    with pytest.raises(ModelFileError, match=r"there is no tensor 'model\.q'"):
        load_weights(folder(q=None), PARAMETERS)
    with pytest.raises(ModelFileError, match=r"'model\.q': its type I64 is not supported"):
        load_weights(folder(q=("I64", (1,), bytes(8))), PARAMETERS)


def test_wrong_shape_names_file_tensor_and_both(folder: Callable[..., WeightSource]) -> None:
    source = folder(q=("F32", (32, 48), bytes(32 * 48 * 4)))
    with pytest.raises(ModelFileError) as caught:
        load_weights(source, PARAMETERS)
    for part in ("model.safetensors", "'model.q'", "(32, 48)", "(48, 32)"):
        assert part in str(caught.value)


def test_values_that_cannot_be_quantized_name_the_tensor(folder: Callable[..., WeightSource]) -> None:
    source = folder(q=("F32", (48, 32), np.full((48, 32), np.nan, np.float32).tobytes()))
    with pytest.raises(ModelFileError, match=r"'model\.q': it holds values that are not finite"):
        load_weights(source, PARAMETERS, "auto", "int8")


def test_a_quantization_without_effect_is_told(stored_as: Callable[..., WeightSource], caplog: pytest.LogCaptureFixture) -> None:
    packed = [parameter for parameter in PARAMETERS if parameter.name != "odd"]
    load_weights(stored_as("Q4_0"), [p for p in PARAMETERS if p.name == "odd"], quantization="int8")  # one that can be quantized
    load_weights(stored_as("Q4_0"), packed)
    assert "no effect" not in caplog.text
    load_weights(stored_as("Q4_0"), packed, quantization="int8")
    assert "quantization = int8 has no effect" in caplog.text


def test_unused_tensors_are_reported_unless_expected(folder: Callable[..., WeightSource], caplog: pytest.LogCaptureFixture) -> None:
    scalar = ("F32", (1,), bytes(4))
    load_weights(folder(**{"layers.0.self_attn.rotary_emb.inv_freq": scalar, "vision_tower.x": scalar}), PARAMETERS)
    assert not caplog.records
    load_weights(folder(surprise=scalar), PARAMETERS)
    assert "does not use 1 tensors: model.surprise" in caplog.text


def test_report_names_stored_and_loaded_formats(folder: Callable[..., WeightSource]) -> None:
    source = folder(extra=("F32", (3,), bytes(12)))
    facts = {f.file_name: f for f in tensor_facts(source, PARAMETERS, load_weights(source, PARAMETERS, "auto", "int8"))}
    q, extra = facts["model.q"], facts["model.extra"]
    assert (q.name, q.shape, q.stored_format, q.stored_bytes) == ("q", (48, 32), "F16", 48 * 64)
    assert (q.loaded_format, q.loaded_bytes) == ("Q8_0", 48 * 34)
    assert (extra.name, extra.loaded_format, extra.loaded_bytes) == (None, None, 0)
    assert bytes_by_format(list(facts.values())) == {"F16": (4, 2 * (64 * 32 + 48 * 32 + 160 + 32)), "F32": (1, 12)}
