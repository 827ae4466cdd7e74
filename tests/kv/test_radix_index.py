"""The radix index against a dictionary of prefixes, and against the hash index."""

from __future__ import annotations

import time
from hashlib import sha256

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from octavo.kv.interfaces import PoolSpec
from octavo.kv.prefix_index.hash import HashPrefixIndex
from octavo.kv.prefix_index.radix import RadixPrefixIndex

NUM_BLOCKS = 30
paths = st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple)


def chain_of(path: tuple[int, ...]) -> list[bytes]:
    chain = [b"root"]
    for word in path:
        chain.append(sha256(chain[-1] + bytes([word])).digest())
    return chain


class RadixMachine(RuleBasedStateMachine):
    """``known``: path → block, of those that can be reached; ``lost``: blocks that cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.index = RadixPrefixIndex(PoolSpec(NUM_BLOCKS, 16))
        self.known: dict[tuple[int, ...], int] = {}
        self.lost: set[int] = set()

    @rule(path=paths, data=st.data())
    def insert(self, path: tuple[int, ...], data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(path) - 1))
        unused = sorted(set(range(NUM_BLOCKS)) - set(self.known.values()) - self.lost)
        if len(unused) < len(path) - first:
            return
        blocks = data.draw(st.permutations(unused))[: len(path) - first]
        expected = []
        for end, block in enumerate(blocks, first + 1):
            if path[:end] not in self.known and (end == 1 or path[: end - 1] in self.known):
                self.known[path[:end]] = block
                expected.append(block)
        assert self.index.insert(chain_of(path), first, np.array(blocks, np.int32)).tolist() == expected

    @rule(path=paths)
    def lookup(self, path: tuple[int, ...]) -> None:
        expected = []
        while len(expected) < len(path) and path[: len(expected) + 1] in self.known:
            expected.append(self.known[path[: len(expected) + 1]])
        assert self.index.lookup(chain_of(path)[1:]).tolist() == expected

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        blocks = data.draw(st.lists(st.sampled_from([*self.known.values(), *self.lost] or [None]), unique=True, max_size=5))
        gone = {block for block in blocks if block is not None}
        self.index.remove(np.array([block for block in blocks if block is not None], np.int32))
        reachable = {
            path: block for path, block in self.known.items() if not any(self.known[path[:end]] in gone for end in range(1, len(path) + 1))
        }
        self.lost = (self.lost | set(self.known.values())) - set(reachable.values()) - gone
        self.known = reachable

    @invariant()
    def adds_up(self) -> None:
        self.index.check_integrity()
        assert len(self.index) == len(self.known) + len(self.lost)


RadixMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestRadixMachine = RadixMachine.TestCase


def test_a_long_prefix_is_found_faster_than_hash_by_hash() -> None:
    chain = [b"root", *(sha256(str(i).encode()).digest() for i in range(8192))]
    blocks = np.random.default_rng(0).permutation(8192).astype(np.int32)
    seconds = {}
    for kind in (HashPrefixIndex, RadixPrefixIndex):
        index = kind(PoolSpec(8192, 16))
        for first in range(0, 8192, 512):
            assert len(index.insert(chain, first, blocks[first : first + 512])) == 512
        times = []
        for _ in range(10):
            start = time.perf_counter()
            found = index.lookup(chain[1:])
            times.append(time.perf_counter() - start)
        assert found.tolist() == blocks.tolist()
        seconds[kind] = min(times)
        index.remove(blocks[::-1])
        assert len(index) == 0
    assert seconds[RadixPrefixIndex] < seconds[HashPrefixIndex]
