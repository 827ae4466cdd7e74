"""KV scales of a checkpoint, under each name that checkpoints use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from octavo.errors import ModelFileError
from octavo.weights.kv_scales import KVScales, read_kv_scales
from octavo.weights.source import open_source


def read(folder: Path, tensors: dict[str, np.ndarray], num_layers: int = 3) -> KVScales:
    (folder / "config.json").write_text("{}")
    save_file({"model.embed_tokens.weight": np.zeros((2, 2), np.float32), **tensors}, folder / "model.safetensors")
    source = open_source(folder)
    try:
        return read_kv_scales(source, num_layers)
    finally:
        source.close()


def scalars(layer: int, **values: float) -> dict[str, np.ndarray]:
    return {f"model.layers.{layer}.self_attn.{name.replace('__', '.')}": np.array(x, np.float32) for name, x in values.items()}


@pytest.mark.parametrize(
    ("k", "v"),
    [("k_scale", "v_scale"), ("attn__k_scale", "attn__v_scale"), ("k_proj__k_scale", "v_proj__v_scale"),
     ("qkv_proj__k_scale", "qkv_proj__v_scale"), ("k_proj__output_scale", "v_proj__output_scale")],
)  # fmt: skip
def test_each_name_is_found(tmp_path: Path, k: str, v: str) -> None:
    scales = read(tmp_path, scalars(0, **{k: 0.5, v: 0.25}) | scalars(2, **{k: 3.0, v: 4.0}))
    assert (scales.k, scales.v) == ((0.5, None, 3.0), (0.25, None, 4.0))
    assert scales.missing() == [1]
    assert scales.pairs() == ((0.5, 0.25), (1.0, 1.0), (3.0, 4.0))


def test_one_scale_for_both_is_taken_for_both_and_half_a_pair_is_missing(tmp_path: Path) -> None:
    scales = read(tmp_path, scalars(0, kv_scale=0.5) | scalars(1, k_scale=0.125))
    assert (scales.pairs(), scales.missing()) == (((0.5, 0.5), (0.125, 1.0), (1.0, 1.0)), [1, 2])


def test_none_at_all(tmp_path: Path) -> None:
    scales = read(tmp_path, {})
    assert (scales.pairs(), scales.missing()) == ((), [0, 1, 2])


def test_a_scale_in_a_list_of_one_and_as_bf16(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file as save_torch

    (tmp_path / "config.json").write_text("{}")
    save_torch({"model.layers.0.self_attn.kv_scale": torch.tensor([0.375], dtype=torch.bfloat16)}, tmp_path / "model.safetensors")
    assert read_kv_scales(open_source(tmp_path), 1).pairs() == ((0.375, 0.375),)


@pytest.mark.parametrize("bad", [np.float32(0), np.float32(-1), np.float32(np.nan), np.float32(np.inf), np.ones(2, np.float32)])
def test_a_scale_that_is_no_positive_number_is_refused_by_name(tmp_path: Path, bad: np.ndarray) -> None:
    with pytest.raises(ModelFileError, match=r"model\.layers\.1\.self_attn\.k_scale"):
        read(tmp_path, {"model.layers.1.self_attn.k_scale": np.asarray(bad)})
