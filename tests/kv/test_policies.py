"""Choosing policies by name."""

from __future__ import annotations

import pytest

from octavo.config import KV_POLICIES
from octavo.errors import InvalidRequestError
from octavo.kv import policies

PAGED = KV_POLICIES["paged"]


@pytest.mark.parametrize("name", KV_POLICIES)
def test_every_preset_is_valid(name: str) -> None:
    chosen = policies.choose(KV_POLICIES[name])
    assert chosen.caches == (KV_POLICIES[name]["prefix_index"] != "none")


@pytest.mark.parametrize(
    ("seam", "known"),
    [
        ("placement", "paged"),
        ("prefix_index", "none, hash, radix"),
        ("eviction", "lru"),
        ("admission", "optimistic, guaranteed, predicted"),
    ],
)
def test_an_unknown_name_lists_those_there_are(seam: str, known: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"kv_{seam} = 'magic': choose one of {known}") as error:
        policies.choose(PAGED | {seam: "magic"})
    assert error.value.field == f"kv_{seam}"


def test_names_that_do_not_go_together_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policies.REQUIRED, "admission=guaranteed", (("prefix_index=none",), "a reason"))
    policies.choose(PAGED)
    policies.choose(PAGED | {"admission": "guaranteed", "prefix_index": "none"})
    message = "admission=guaranteed and prefix_index=hash do not go together: a reason; choose prefix_index=none"
    with pytest.raises(InvalidRequestError, match=message):
        policies.choose(PAGED | {"admission": "guaranteed"})


@pytest.mark.parametrize("placement", ["contiguous", "contiguous-best", "static"])
def test_a_placement_of_runs_refuses_to_share(placement: str) -> None:
    policies.choose(PAGED | {"placement": placement, "prefix_index": "none"})
    with pytest.raises(InvalidRequestError, match=f"placement={placement} and prefix_index=hash do not go together: a request's run"):
        policies.choose(PAGED | {"placement": placement})


def test_optimistic_admission_keeps_a_block_for_each_running_request_that_may_want_one() -> None:
    admission = policies.choose(PAGED).admission
    assert admission.admits(needed_now=10, needed_at_most=99, available=10, promised=0, num_running=5, running=[])
    assert admission.admits(needed_now=10, needed_at_most=99, available=13, promised=3, num_running=5, running=[])
    assert admission.admits(needed_now=10, needed_at_most=99, available=15, promised=90, num_running=5, running=[])
    assert not admission.admits(needed_now=10, needed_at_most=99, available=14, promised=90, num_running=5, running=[])


def test_guaranteed_admission_keeps_all_that_was_promised() -> None:
    admission = policies.choose(PAGED | {"admission": "guaranteed"}).admission
    assert admission.admits(needed_now=1, needed_at_most=10, available=15, promised=5, num_running=5, running=[])
    assert not admission.admits(needed_now=1, needed_at_most=10, available=14, promised=5, num_running=5, running=[])
