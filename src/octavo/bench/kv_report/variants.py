"""Which ways to store K and V are compared."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.config import KV_DTYPE_ALIASES
from octavo.engine.kv_variants import KVVariant
from octavo.errors import InvalidRequestError

REFERENCE = KVVariant("fp32")
"""What the others are compared with in fidelity."""
BASELINE = KVVariant("bf16")
"""What they are compared with in memory and speed."""
WIDE_DTYPES = ("fp16", "bf16")
NARROW_DTYPES = ("fp8_e4m3", "fp8_e5m2", "int8")
SCALES = ("static", "dynamic", "guarded")


def choose_variants(dtypes: Sequence[str]) -> list[KVVariant]:
    """REFERENCE, BASELINE, and all scale modes of each of ``dtypes``; of all there are if it is empty.

    A dtype may name one scale mode: "int8/dynamic". Raises InvalidRequestError for an unknown one.
    """
    variants = [REFERENCE, BASELINE]
    for name in dtypes or (*WIDE_DTYPES, *NARROW_DTYPES):
        variants += [variant for variant in _named(name) if variant not in variants]
    return variants


def _named(name: str) -> list[KVVariant]:
    dtype, slash, scales = name.partition("/")
    dtype = KV_DTYPE_ALIASES.get(dtype, dtype)
    if not slash and dtype in WIDE_DTYPES:
        return [KVVariant(dtype)]
    if dtype in NARROW_DTYPES and (not slash or scales in SCALES):
        return [KVVariant(dtype, mode) for mode in SCALES if mode == scales or not slash]
    known = ", ".join((*WIDE_DTYPES, *NARROW_DTYPES))
    raise InvalidRequestError(
        f"dtypes = {name}: choose of {known}; an 8-bit one may name its scales: int8/{'|'.join(SCALES)}", field="dtypes"
    )
