"""What the log says of the scales of 8-bit K and V: once at the start, and once of each layer that they turn out not to fit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from octavo.ops.kv_format import KVFormat
from octavo.outputs import KVWrites
from octavo.weights.kv_scales import KVScales

logger = logging.getLogger(__name__)

GUARDED_SHARE = 0.5
"""Of a layer's K vectors, or V vectors: if more have a scale of their own, the layer's does not fit."""
CLIPPED_SHARE = 0.01
"""Clipped numbers a vector: the same under static scales."""
LEAST_VECTORS = 4096
"""Fewer prove nothing."""


def say_what_is_missing(format: KVFormat, scales: KVScales) -> None:
    """Warn of layers that the checkpoint has no scales for, where they are wanted."""
    missing = scales.missing()
    if not missing or format.scales not in ("static", "guarded"):
        return
    found = f"kv_scales = {format.scales}: the checkpoint has no K and V scales for {layer_names(missing)}; 1.0 stands in for them"
    if format.scales == "static":
        logger.warning("%s. What that clips is lost; --kv-scales guarded and dynamic do without scales of a checkpoint", found)
    elif len(missing) < len(scales.k):
        logger.warning("%s, and tokens that it does not fit get scales of their own", found)


def layer_names(layers: Iterable[int]) -> str:
    """ "layer 3", or "layers 0-2, 5"."""
    runs: list[list[int]] = []
    for layer in sorted(layers):
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    names = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"layer {names}" if names.isdecimal() else f"layers {names}"


class KVAdvice:
    """Names each layer once, when its share of vectors that the scale does not fit is past the limit. Looks each time that twice as much
    has been written."""

    def __init__(self, scales: str) -> None:
        self._scales = scales
        self._next = LEAST_VECTORS
        self._named: set[tuple[str, int]] = set()

    def look(self, writes: KVWrites) -> None:
        """``writes``: totals so far."""
        if max(writes.vectors) < self._next:
            return
        self._next = 2 * max(writes.vectors)
        if self._scales == "guarded":
            self._name(writes.vectors, {"K": writes.guarded_k, "V": writes.guarded_v}, GUARDED_SHARE)
        elif self._scales == "static":
            self._name(writes.vectors, {"K": writes.clipped_k, "V": writes.clipped_v}, CLIPPED_SHARE)

    def _name(self, vectors: Sequence[int], found: dict[str, Sequence[int]], limit: float) -> None:
        for part, counts in found.items():
            past = {i for i, count in enumerate(counts) if count > limit * vectors[i] and (part, i) not in self._named}
            self._named |= {(part, i) for i in past}
            if past:
                logger.warning("%s of %s: %s", part, layer_names(past), _ADVICE[self._scales].format(100 * limit))


_ADVICE = {
    "guarded": "more than {:.0f} % of its vectors do not fit the layer's scale and have their own; --kv-scales dynamic stores as much "
    "and tries nothing else first",
    "static": "numbers beyond the scale's range were clipped, more than {:.0f} to a hundred vectors; --kv-scales guarded or "
    "dynamic keeps them, for 2 bytes a vector",
}
"""What to do, by mode."""
