"""Facts about each tensor of a model, for `octavo inspect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from octavo.ops.spec import Parameter
from octavo.weights.formats import Weight
from octavo.weights.source import WeightSource


@dataclass(frozen=True)
class TensorFacts:
    """A tensor as stored, and as loaded."""

    file_name: str
    name: str | None
    """Canonical name of the parameter it became; None if the model does not use it."""
    shape: tuple[int, ...]
    stored_format: str
    stored_bytes: int
    loaded_format: str | None
    """After --dtype and --quantization; a back end may run it in yet another (PackedWeight.run_format)."""
    loaded_bytes: int


def tensor_facts(source: WeightSource, parameters: Sequence[Parameter], weights: Mapping[str, Weight]) -> list[TensorFacts]:
    """All tensors in the file's order. ``weights`` are those of load_weights for ``parameters``."""
    by_file_name = {p.gguf if source.kind == "gguf" else p.hf: p.name for p in parameters}
    facts = []
    for file_name in source.names():
        info = source.info(file_name)
        name = by_file_name.get(file_name)
        loaded = weights[name] if name is not None else None
        facts.append(
            TensorFacts(
                file_name, name, info.shape, info.format.name, info.nbytes,
                loaded.format.name if loaded else None, loaded.nbytes if loaded else 0,
            )
        )  # fmt: skip
    return facts


def bytes_by_format(facts: Sequence[TensorFacts]) -> dict[str, tuple[int, int]]:
    """Stored format → (tensors, bytes), largest first."""
    totals: dict[str, tuple[int, int]] = {}
    for fact in facts:
        tensors, nbytes = totals.get(fact.stored_format, (0, 0))
        totals[fact.stored_format] = (tensors + 1, nbytes + fact.stored_bytes)
    return dict(sorted(totals.items(), key=lambda item: -item[1][1]))
