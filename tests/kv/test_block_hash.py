"""The chain of block hashes, against hashlib and by properties."""

from __future__ import annotations

import hashlib
import itertools
import struct

from hypothesis import given
from hypothesis import strategies as st

from octavo.kv.block_hash import extend_chain, root_hash

words = st.one_of(st.none(), st.text(max_size=5))


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.sampled_from([1, 4, 8]))
def test_a_chain_is_sha_256_of_parent_and_tokens(tokens: list[int], block_size: int) -> None:
    chain = [root_hash(block_size, "n", None, None)]
    extend_chain(chain, tokens, len(tokens) // block_size, block_size)
    parent = chain[0]
    for i in range(len(tokens) // block_size):
        block = tokens[i * block_size : (i + 1) * block_size]
        parent = hashlib.sha256(parent + struct.pack(f"<{block_size}I", *block)).digest()
        assert chain[i + 1] == parent
    assert len(chain) == 1 + len(tokens) // block_size


@given(st.lists(st.integers(0, 9), min_size=24, max_size=24), st.lists(st.integers(0, 6), max_size=6))
def test_growing_by_steps_is_growing_at_once(tokens: list[int], stops: list[int]) -> None:
    at_once, by_steps = [root_hash(4, "n", "s", None)], [root_hash(4, "n", "s", None)]
    extend_chain(at_once, tokens, 6, 4)
    for num_blocks in [*stops, 6]:
        extend_chain(by_steps, tokens, num_blocks, 4)
    assert by_steps == at_once


@given(st.lists(st.tuples(st.sampled_from([8, 16]), st.text(max_size=5), words, words), min_size=2, max_size=8, unique=True))
def test_kv_12_roots_differ_when_any_field_does(fields: list[tuple]) -> None:
    assert len({root_hash(*each) for each in fields}) == len(fields)


def test_kv_12_one_spelling_in_different_fields_differs() -> None:
    spellings = itertools.product(["", "X", None], ["", "X", None], ["", "X"])
    roots = [root_hash(16, numerics_id, salt, adapter) for salt, adapter, numerics_id in spellings]
    assert len(set(roots)) == len(roots)
