"""Reading a model's description."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from octavo.errors import ModelFileError
from octavo.runner.loading import read_config

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def source(**changes: Any) -> Any:
    return SimpleNamespace(kind="hf", path=Path("/models/m"), config=CONFIG | changes)


def test_a_description_is_read() -> None:
    assert read_config(source()).vocab_size == 100


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("vocab_size", value) for value in (None, "100", -1, 1.5)),
        *(("rms_norm_eps", value) for value in ("small", [], {})),
        *(("architectures", value) for value in (5, [[]], "x")),
        *(("rope_parameters", value) for value in ("x", 5, [1])),
        *(("sliding_window", value) for value in ("x", [8])),
        ("generation_config", "x"),
    ],
)
def test_whatever_is_wrong_with_it_the_file_is_named(field: str, value: Any) -> None:
    with pytest.raises(ModelFileError, match=r"^/models/m: ") as error:
        read_config(source(**{field: value}))
    assert str(error.value).count("/models/m") == 1
