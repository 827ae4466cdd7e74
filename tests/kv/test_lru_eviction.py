"""LRU against an OrderedDict."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from octavo.kv.eviction.lru import LRUEviction
from octavo.kv.interfaces import PoolSpec

NUM_BLOCKS = 40

operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, NUM_BLOCKS - 1), unique=True)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, NUM_BLOCKS - 1), unique=True)),
        st.tuples(st.just("evict"), st.integers(0, NUM_BLOCKS)),
    ),
    max_size=60,
)


@given(operations)
def test_like_an_ordered_dict(steps: list) -> None:
    lru, model = LRUEviction(PoolSpec(NUM_BLOCKS, 16)), OrderedDict()
    for name, argument in steps:
        if name == "add":
            blocks = [block for block in argument if block not in model]
            lru.add(np.array(blocks, np.int32))
            model.update(dict.fromkeys(reversed(blocks)))  # the last goes first
        elif name == "remove":
            blocks = [block for block in argument if block in model]
            lru.remove(np.array(blocks, np.int32))
            for block in blocks:
                del model[block]
        else:
            count = min(argument, len(model))
            assert lru.evict(count).tolist() == [model.popitem(last=False)[0] for _ in range(count)]
        assert len(lru) == len(model)
        assert lru.idle_blocks().tolist() == list(model)
        lru.check_integrity()
