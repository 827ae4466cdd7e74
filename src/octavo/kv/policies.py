"""KV policies by name. A new one is a class in a file of its own, and one line here; or a plugin (octavo.kv.plugins)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from octavo.errors import InvalidRequestError
from octavo.kv.admission.guaranteed import GuaranteedAdmission
from octavo.kv.admission.optimistic import OptimisticAdmission
from octavo.kv.admission.predicted import PredictedAdmission
from octavo.kv.eviction.cost import CostEviction
from octavo.kv.eviction.lfu import LFUEviction
from octavo.kv.eviction.lru import LRUEviction
from octavo.kv.interfaces import Admission, Eviction, Placement, PoolSpec, PrefixIndex, Victim
from octavo.kv.placement.contiguous import ContiguousPlacement
from octavo.kv.placement.contiguous_best import BestFitPlacement
from octavo.kv.placement.paged import PagedPlacement
from octavo.kv.placement.static import StaticPlacement
from octavo.kv.plugins import load_plugin, plugin_names, setting_of
from octavo.kv.prefix_index.hash import HashPrefixIndex
from octavo.kv.prefix_index.none import NoPrefixIndex
from octavo.kv.prefix_index.radix import new_radix_index
from octavo.kv.victim.cheapest import CheapestVictim
from octavo.kv.victim.last import LastVictim

T = TypeVar("T")

PLACEMENTS: dict[str, Callable[[PoolSpec], Placement]] = {
    "paged": PagedPlacement,
    "contiguous": ContiguousPlacement,
    "contiguous-best": BestFitPlacement,
    "static": StaticPlacement,
}
PREFIX_INDEXES: dict[str, Callable[[PoolSpec], PrefixIndex]] = {"none": NoPrefixIndex, "hash": HashPrefixIndex, "radix": new_radix_index}
EVICTIONS: dict[str, Callable[[PoolSpec], Eviction]] = {"lru": LRUEviction, "lfu": LFUEviction, "cost": CostEviction}
ADMISSIONS: dict[str, Callable[[], Admission]] = {
    "optimistic": OptimisticAdmission,
    "guaranteed": GuaranteedAdmission,
    "predicted": PredictedAdmission,
}
VICTIMS: dict[str, Callable[[], Victim]] = {"last": LastVictim, "cheapest": CheapestVictim}

BUILT_IN: dict[str, Mapping[str, Callable[..., Any]]] = {
    "placement": PLACEMENTS,
    "prefix_index": PREFIX_INDEXES,
    "eviction": EVICTIONS,
    "admission": ADMISSIONS,
    "victim": VICTIMS,
}
FALLBACKS = {"placement": "paged", "prefix_index": "hash", "eviction": "lru"}
"""What takes the place of a plugin that has lost count of its blocks (octavo.kv.block_pool): it goes with every policy that is left."""

_RUN_IS_ONE = "a request's run of blocks goes back as a whole when it ends, and a block that others share would outlive it"
_NO_INDEX = ("prefix_index=none",)
REQUIRED: dict[str, tuple[tuple[str, ...], str]] = {
    "placement=contiguous": (_NO_INDEX, _RUN_IS_ONE),
    "placement=contiguous-best": (_NO_INDEX, _RUN_IS_ONE),
    "placement=static": (_NO_INDEX, _RUN_IS_ONE),
    "compaction=on": (
        ("placement=contiguous", "placement=contiguous-best"),
        "it makes long runs of free blocks, and where any block or slot will do nobody needs one",
    ),
}
"""Choices, each as "seam=name", that work with some choices of another seam only, and why. All others go together."""


@dataclass(frozen=True)
class Policies:
    """One policy a seam: constructors for what each pool has of its own, and the one admission."""

    placement: Callable[[PoolSpec], Placement]
    prefix_index: Callable[[PoolSpec], PrefixIndex]
    eviction: Callable[[PoolSpec], Eviction]
    admission: Admission
    caches: bool
    """Whether blocks are hashed at all."""


def choose(names: Mapping[str, str], compaction: bool = False) -> Policies:
    """The policies of ``names`` (placement, prefix_index, eviction, admission), to be used with compaction or without.

    Raises:
        InvalidRequestError: for an unknown name (it lists those there are), or names that do not go together (it says why).
    """
    chosen = Policies(
        placement=_named("placement", names, PLACEMENTS),
        prefix_index=_named("prefix_index", names, PREFIX_INDEXES),
        eviction=_named("eviction", names, EVICTIONS),
        admission=_named("admission", names, ADMISSIONS)(),
        caches=names["prefix_index"] != "none",
    )
    choices = [*(f"{seam}={name}" for seam, name in names.items()), *(["compaction=on"] if compaction else [])]
    for choice in choices:
        needed, reason = REQUIRED.get(choice, ((choice,), ""))
        if not set(needed) & set(choices):
            other = next(each for each in choices if each.startswith(needed[0].partition("=")[0]))
            seam, _, name = choice.partition("=")
            field = setting_of(seam)
            raise InvalidRequestError(
                f"{field} = {name}: {choice} and {other} do not go together: {reason}; choose {' or '.join(needed)}", field=field
            )
    return chosen


def choose_victim(name: str) -> Victim:
    """The rule for who is preempted; it goes with every other policy.

    Raises:
        InvalidRequestError: for an unknown name: it lists those there are.
    """
    return _named("victim", {"victim": name}, VICTIMS)()


def placement_reserves(names: Mapping[str, str]) -> bool:
    """Whether the placement among these policies reserves: see Placement.reserves. One over a pool of a single block is asked."""
    return choose(names).placement(PoolSpec(num_blocks=1, block_size=1)).reserves


def _named(seam: str, names: Mapping[str, str], table: Mapping[str, Callable[..., T]]) -> Callable[..., T]:
    name = names[seam]
    if name in table:
        return table[name]
    try:
        return load_plugin(seam, name)
    except KeyError:
        known = ", ".join([*table, *plugin_names(seam)])
        field = setting_of(seam)
        raise InvalidRequestError(f"{field} = {name!r}: choose one of {known}", field=field) from None
