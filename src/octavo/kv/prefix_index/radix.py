"""Radix index: a tree whose paths are the cached prefixes; a node is a run of blocks that no other prefix leaves or enters.

After RadixAttention (Zheng et al. 2024, "SGLang", section 3), with edges of whole blocks, named by their chained hashes
(octavo.kv.block_hash). A hash stands for all before it, so two paths that agree at one place agree up to it: where a prefix leaves
a node is found by bisection, and a lookup costs O(nodes × log blocks) whatever the prefix's length, besides copying block ids.

Only what can be reached from the root is found. A block whose predecessor is forgotten stays known, without a place in the tree, until it
is removed; and a block whose predecessors are not known is not remembered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from octavo.kv.interfaces import NO_BLOCKS, BlockHash, BlockIds, PoolSpec, PrefixIndex
from octavo.kv.prefix_index.hash import HashPrefixIndex


class Node:
    """A run of blocks and what may follow its last; ``siblings`` is the table that it is in, by its first hash."""

    __slots__ = ("blocks", "children", "hashes", "siblings")

    def __init__(self, hashes: list[BlockHash], blocks: BlockIds, siblings: dict[BlockHash, Node]) -> None:
        self.hashes = hashes
        self.blocks = blocks
        self.siblings = siblings
        self.children: dict[BlockHash, Node] = {}
        siblings[hashes[0]] = self


class RadixPrefixIndex:
    """The tree, and for each block the node that it is in."""

    def __init__(self, spec: PoolSpec) -> None:
        self._roots: dict[BlockHash, Node] = {}
        self._node_of: list[Node | None] = [None] * spec.num_blocks
        self._unreachable: set[int] = set()
        self._num_reachable = 0

    def lookup(self, hashes: list[BlockHash]) -> BlockIds:
        runs = [node.blocks[:count] for node, count in self._walk(hashes, 0, len(hashes))]
        return np.concatenate([NO_BLOCKS, *runs])

    def find(self, hashes: list[BlockHash]) -> BlockIds:
        """What can be reached: nothing past a block that is unknown. See new_radix_index."""
        blocks = np.full(len(hashes), -1, np.int32)
        known = self.lookup(hashes)
        blocks[: len(known)] = known
        return blocks

    def insert(self, chain: list[BlockHash], first: int, blocks: BlockIds) -> BlockIds:
        end = first + 1 + len(blocks)
        path = list(self._walk(chain, 1, end))
        node, count = path[-1] if path else (None, 0)
        num_known = sum(count for _, count in path)
        if not first <= num_known < first + len(blocks):
            return NO_BLOCKS
        new = blocks[num_known - first :].copy()
        self._append(node, count, chain[num_known + 1 : end], new)
        self._num_reachable += len(new)
        return new

    def remove(self, blocks: BlockIds) -> None:
        gone = blocks.tolist()
        for block in reversed(gone):  # a prefix's tail comes before its head: from the head on, one cut does for all
            node = self._node_of[block]
            if node is not None:
                self._cut(node, int(np.flatnonzero(node.blocks == block)[0]))
        self._unreachable.difference_update(gone)

    def clear(self) -> None:
        self._roots.clear()
        self._node_of = [None] * len(self._node_of)
        self._unreachable.clear()
        self._num_reachable = 0

    def __len__(self) -> int:
        return self._num_reachable + len(self._unreachable)

    def check_integrity(self) -> None:
        known = 0
        for node, siblings in self._nodes(self._roots):
            assert node.siblings is siblings and siblings[node.hashes[0]] is node, "a node is in another table than it says"
            assert len(node.hashes) == len(node.blocks) > 0, "a node has no blocks, or not a hash for each"
            assert all(self._node_of[block] is node for block in node.blocks.tolist()), "a block is in two nodes"
            known += len(node.blocks)
        placed = {block for block, owner in enumerate(self._node_of) if owner is not None}
        assert known == len(placed) == self._num_reachable, "blocks in the tree are miscounted"
        assert not placed & self._unreachable, "a block is in the tree and out of reach"

    def _walk(self, hashes: list[BlockHash], start: int, end: int) -> Iterator[tuple[Node, int]]:
        """The nodes along hashes[start:end], each with how many of its blocks lie on that path."""
        siblings = self._roots
        while start < end and (node := siblings.get(hashes[start])) is not None:
            count = _num_equal(node.hashes, hashes, start, min(len(node.hashes), end - start))
            yield node, count
            if count < len(node.hashes):
                return
            start += count
            siblings = node.children

    def _append(self, node: Node | None, count: int, hashes: list[BlockHash], blocks: BlockIds) -> None:
        """New blocks behind the first ``count`` of ``node``, or at the root."""
        if node is not None and count == len(node.hashes) and not node.children:
            node.hashes += hashes
            node.blocks = np.concatenate([node.blocks, blocks])
        else:
            if node is not None and count < len(node.hashes):
                self._split(node, count)
            node = Node(hashes, blocks, self._roots if node is None else node.children)
        for block in blocks.tolist():
            self._node_of[block] = node

    def _split(self, node: Node, count: int) -> None:
        """Move what follows the first ``count`` blocks into a node of its own."""
        children, node.children = node.children, {}
        rest = Node(node.hashes[count:], node.blocks[count:], node.children)
        rest.children = children
        del node.hashes[count:]
        node.blocks = node.blocks[:count]
        for block in rest.blocks.tolist():
            self._node_of[block] = rest

    def _cut(self, node: Node, count: int) -> None:
        """Put what follows the first ``count`` blocks of ``node`` out of reach."""
        lost = [node.blocks[count:], *(below.blocks for below, _ in self._nodes(node.children))]
        if count:
            del node.hashes[count:]
            node.blocks = node.blocks[:count]
            node.children = {}
        else:
            del node.siblings[node.hashes[0]]
        for block in np.concatenate(lost).tolist():
            self._node_of[block] = None
            self._unreachable.add(block)
            self._num_reachable -= 1

    def _nodes(self, siblings: dict[BlockHash, Node]) -> Iterator[tuple[Node, dict[BlockHash, Node]]]:
        """Every node of these and below, with the table that it was found in."""
        tables = [siblings]
        while tables:
            table = tables.pop()
            for node in table.values():
                yield node, table
                tables.append(node.children)


def new_radix_index(spec: PoolSpec) -> PrefixIndex:
    """A tree; but a table for a group with a sliding window, whose prefixes lose their heads, and so the root that a tree starts from."""
    return HashPrefixIndex(spec) if spec.window else RadixPrefixIndex(spec)


def _num_equal(run: list[BlockHash], hashes: list[BlockHash], start: int, limit: int) -> int:
    """How many of the first ``limit`` hashes of ``run`` equal those from ``start`` on, when the first do: hashes are chained."""
    return bisect_left(range(limit), True, lo=1, key=lambda i: run[i] != hashes[start + i])
