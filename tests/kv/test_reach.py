"""What a window needs, against positions counted one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from octavo.kv.reach import DECODE_TOKENS, UNBOUNDED, Reach

sizes, windows = st.sampled_from([1, 2, 4, 16]), st.integers(1, 40)


@given(sizes, windows, st.integers(0, 200), st.integers(1, 60))
def test_a_request_holds_what_its_queries_read_and_no_more_than_was_said(size: int, window: int, computed: int, in_flight: int) -> None:
    reach = Reach.of(size, window, True, 60)
    read = {position // size for query in range(computed, computed + in_flight) for position in range(query - window + 1, query + 1)}
    held = {block for block in read if block >= 0}
    assert min(held) == reach.first_block(computed)
    assert len(held) <= reach.most_in_prefill
    assert in_flight > DECODE_TOKENS or len(held) <= reach.most_in_decode


@given(sizes, windows)
def test_what_was_said_is_reached(size: int, window: int) -> None:
    reach = Reach.of(size, window, True, 60)
    most = max(len({position // size for position in range(start, start + window - 1 + 60)}) for start in range(size))
    assert reach.most_in_prefill == most


@given(sizes, windows, st.lists(st.sampled_from([-1, 3, 7]), max_size=30))
def test_a_prefix_is_covered_if_each_block_that_is_read_behind_it_is_there(size: int, window: int, blocks: list[int]) -> None:
    reach = Reach.of(size, window, True, 60)
    expected = []
    for end in range(1, len(blocks) + 1):
        first_read = max(end * size - window + 1, 0)
        expected.append(all(blocks[position // size] >= 0 for position in range(first_read, end * size)))
    assert reach.covered(np.array(blocks, np.int32)).tolist() == expected


def test_no_window_or_a_placement_that_reserves() -> None:
    for reach in (Reach.of(16, 0, True, 60), Reach.of(16, 512, False, 60)):
        assert not reach.slides and reach.first_block(10_000) == 0 and reach.most_in_prefill == UNBOUNDED
        assert reach.needs(0, 5, 9, 20) == (9, 11) and reach.needs(0, 12, 9, 20) == (12, 8) and reach.most(20) == 20


def test_needs_by_hand() -> None:
    reach = Reach.of(4, 9, True, 12)  # in prefill 8 + 12 positions: 6 blocks at most; in decode the same, as 12 < 16
    assert (reach.most_in_prefill, reach.most_in_decode) == (6, 6)
    assert reach.needs(0, 0, 20, 30) == (6, 0)  # a long prefill starts
    assert reach.needs(10, 14, 20, 30) == (6, 0)  # in the middle of it
    assert reach.needs(16, 20, 20, 30) == (4, 2)  # done
    assert reach.needs(0, 0, 2, 30) == (2, 4)  # a short one
    assert reach.needs(27, 29, 2, 30) == (2, 1)  # near its end
