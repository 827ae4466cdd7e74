"""KVCacheManager as a state machine: usage is recounted, slot by slot, from the block tables after every step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.config import KV_POLICIES
from octavo.errors import InvalidRequestError
from octavo.kv.kv_cache_manager import KVCacheManager
from octavo.kv.placement.paged import PagedPlacement
from octavo.request import EngineCoreRequest, Request
from octavo.runner.interface import LayerGroup
from octavo.sampling_params import SamplingParams
from support.combinations import valid_combinations

BLOCK_SIZE = 4
NUM_BLOCKS = [20, 16]
MAX_NUM_SEQS = 3
MAX_MODEL_LEN = 21  # six blocks: 18 of the 20 and 12 of the 16 are in slots of a static placement
MAX_TOKENS_IN_FLIGHT = 20


def new_manager(num_blocks: list[int] = NUM_BLOCKS, windows: tuple[int, ...] = (0, 0), **policies: str) -> KVCacheManager:
    groups = [LayerGroup(f"group {i}", 1, 64 * (i + 1), window) for i, (_, window) in enumerate(zip(num_blocks, windows, strict=False))]
    return KVCacheManager(
        groups,
        num_blocks,
        BLOCK_SIZE,
        KV_POLICIES["paged"] | policies,
        "numerics",
        MAX_NUM_SEQS,
        MAX_MODEL_LEN,
        max_tokens_in_flight=MAX_TOKENS_IN_FLIGHT,
    )


def new_request(request_id: str, tokens: list[int], max_tokens: int = 8, **fields: object) -> Request:
    return Request(EngineCoreRequest(request_id, tokens, SamplingParams(max_tokens=max_tokens), **fields))


class ManagerMachine(RuleBasedStateMachine):
    """Requests over three texts, so that prefixes are shared; two groups with pools of different sizes, of which any may have a window."""

    @initialize(policies=st.sampled_from(valid_combinations()), windows=st.tuples(*[st.sampled_from([0, 0, 1, 4, 6, 11])] * 2))
    def begin(self, policies: dict[str, str], windows: tuple[int, int]) -> None:
        self.kv = new_manager(windows=windows, **policies)
        self.windows = windows
        self.placement = policies["placement"]
        self.running: dict[str, Request] = {}
        self.computed: dict[str, int] = {}  # tokens whose step has come back
        self.content: list[dict[int, tuple]] = [{}, {}]  # per group: block → the tokens that its KV stands for
        self.count = 0

    @rule(kind=st.integers(0, 2), length=st.integers(1, 40), new_tokens=st.integers(1, 40), commit=st.booleans())
    def start(self, kind: int, length: int, new_tokens: int, commit: bool) -> None:
        self.count += 1
        request = new_request(f"r{self.count}", [kind + i % 5 for i in range(length)])
        if not self.kv.can_ever_fit(request.max_num_tokens - 1):
            assert self.placement == "static" and self.kv.allocate_slots(request, 1) is None
            return
        hit = self.kv.get_computed_blocks(request)
        assert hit.num_tokens % BLOCK_SIZE == 0 and hit.num_tokens < length
        for group, blocks in enumerate(hit.blocks):
            assert hit.firsts[group] == self.first_read(group, hit.num_tokens)
            for i, block in enumerate(blocks.tolist(), hit.firsts[group]):
                assert self.content[group][block] == tuple(request.all_token_ids[: (i + 1) * BLOCK_SIZE]), "a wrong hit"
        assert hit.num_tokens == self.longest_hit(request)
        new_tokens = min(new_tokens, length - hit.num_tokens, self.budget())
        if not new_tokens:
            return
        growth = self.kv.allocate_slots(request, new_tokens, hit)
        if growth is None:
            return
        if not commit:
            growth.rollback()
            return
        growth.commit()
        request.num_computed_tokens = hit.num_tokens + new_tokens
        self.running[request.request_id] = request
        self.computed[request.request_id] = hit.num_tokens

    @precondition(lambda self: self.running)
    @rule(data=st.data(), new_tokens=st.integers(1, 20), commit=st.booleans())
    def grow(self, data: st.DataObject, new_tokens: int, commit: bool) -> None:
        request = self.running[data.draw(st.sampled_from(sorted(self.running)))]
        new_tokens = min(new_tokens, request.max_num_tokens - 1 - request.num_computed_tokens, self.budget())
        if not new_tokens:
            return
        before = self.kv.block_ids(request)
        growth = self.kv.allocate_slots(request, new_tokens)
        if growth is not None and commit:
            growth.commit()
            for old, new, table in zip(before, growth.new_blocks, self.kv.block_ids(request), strict=True):
                assert table.tolist() == [*old.tolist(), *new.tolist()]
            request.num_computed_tokens += new_tokens
            while request.num_tokens < request.num_computed_tokens:
                request.append_output(7)
        elif growth is not None:
            growth.rollback()
            assert [old.tolist() for old in before] == [table.tolist() for table in self.kv.block_ids(request)]

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def step_comes_back(self, data: st.DataObject) -> None:
        request = self.running[data.draw(st.sampled_from(sorted(self.running)))]
        computed = data.draw(st.integers(self.computed[request.request_id], request.num_computed_tokens))
        for group, table in enumerate(self.kv.block_ids(request)):
            for i, block in enumerate(table[: computed // BLOCK_SIZE].tolist()):
                self.content[group][block] = tuple(request.all_token_ids[: (i + 1) * BLOCK_SIZE])
        self.kv.mark_computed(request, computed)
        self.computed[request.request_id] = computed

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        request = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        del self.computed[request.request_id]
        self.kv.free(request)

    @rule()
    def reset(self) -> None:
        self.kv.reset_prefix_cache()
        assert all(group.cached == 0 for group in self.kv.usage().groups)

    def budget(self) -> int:
        """Tokens that may still go into steps that have not come back."""
        return MAX_TOKENS_IN_FLIGHT - sum(request.num_computed_tokens - self.computed[name] for name, request in self.running.items())

    def first_read(self, group: int, computed: int) -> int:
        """The first block that must be held behind so many tokens."""
        if self.placement != "paged" or not self.windows[group]:
            return 0
        return max(computed - self.windows[group] + 1, 0) // BLOCK_SIZE

    def longest_hit(self, request: Request) -> int:
        """The most tokens, in blocks, of which each group can find each block that is read behind them."""
        hashes = request.block_hashes[1 : (request.num_tokens - 1) // BLOCK_SIZE + 1]
        for count in range(len(hashes), 0, -1):
            found = [pool.index.find(hashes)[self.first_read(i, count * BLOCK_SIZE) : count] for i, pool in enumerate(self.kv.pools)]
            if all((blocks >= 0).all() for blocks in found):
                return count * BLOCK_SIZE
        return 0

    def kept_for(self, request: Request, group: int) -> set[int]:
        """All the blocks that nobody else can have while this request runs."""
        if self.placement == "paged":
            return set()
        first = int(self.kv.block_ids(request)[group][0])
        if self.placement == "static":
            length = 6
            assert first % length == 0, "a slot's first block"
        else:
            length = -(-(request.max_num_tokens - 1) // BLOCK_SIZE)
        return set(range(first, first + length))

    @invariant()
    def usage_is_exact(self) -> None:
        if not hasattr(self, "kv"):
            return
        self.kv.check_integrity(self.running.values())
        for i, usage in enumerate(self.kv.usage().groups):
            held, filled, live, tail = set(), set(), set(), 0
            for request in self.running.values():
                table, computed = self.kv.block_ids(request)[i].tolist(), self.computed[request.request_id]
                first = self.first_read(i, computed)
                assert table[:first] == [-1] * first and -1 not in table[first:]
                held |= set(table[first:]) | self.kept_for(request, i)
                slots = [(table[position // BLOCK_SIZE], position % BLOCK_SIZE) for position in range(computed)]
                filled |= set(slots[first * BLOCK_SIZE :])
                live |= set(slots[max(computed - self.windows[i] + 1, 0) if self.windows[i] else 0 :])
                tail += -(-computed // BLOCK_SIZE) * BLOCK_SIZE - computed
            assert usage.total == NUM_BLOCKS[i] * BLOCK_SIZE
            assert (usage.held, usage.live, usage.tail) == (len(held) * BLOCK_SIZE, len(live), tail)
            assert usage.stale == len(filled - live)
            assert usage.held == usage.live + usage.tail + usage.reserved + usage.stale
            assert usage.held + usage.cached + usage.free == usage.total
            assert min(usage.reserved, usage.free, usage.cached) >= 0 and usage.external == 0
            assert self.placement != "paged" or usage.fragmentation == 0
            assert usage.efficiency == (len(live) / (len(held) * BLOCK_SIZE) if held else 1.0)


ManagerMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestManagerMachine = ManagerMachine.TestCase


def test_usage_in_bytes() -> None:
    kv = new_manager([10, 10])
    request = new_request("a", list(range(9)))
    growth = kv.allocate_slots(request, 9)
    assert growth is not None
    growth.commit()
    kv.mark_computed(request, 9)
    first, second = kv.usage().as_dict()["groups"]
    assert first["slots"] == {
        "total": 40, "held": 12, "live": 9, "tail": 3, "reserved": 0, "stale": 0, "cached": 0, "free": 28, "external": 0,
    }  # fmt: skip
    assert (first["bytes"]["live"], second["bytes"]["live"]) == (9 * 16, 9 * 32)
    assert first["bytes"]["total"] + second["bytes"]["total"] == 10 * 64 + 10 * 128
    usage = kv.usage().as_dict()
    assert (usage["efficiency"], usage["live_of_total"], usage["held_of_total"]) == (0.75, 9 / 40, 12 / 40)


@pytest.mark.parametrize(
    ("placement", "slots"),
    [
        # Two requests of 9 and 4 prompt tokens, 8 to come: 16 and 11 are stored, in four and three of 12 blocks of 4.
        ("contiguous", {"held": 28, "live": 13, "tail": 3, "reserved": 12, "free": 20}),
        ("static", {"held": 48, "live": 13, "tail": 3, "reserved": 32, "free": 0}),  # two slots of six blocks
        ("paged", {"held": 16, "live": 13, "tail": 3, "reserved": 0, "free": 32}),
    ],
)
def test_what_a_placement_reserves_is_held(placement: str, slots: dict[str, int]) -> None:
    kv = new_manager([12], placement=placement, prefix_index="none")
    for name, length in (("a", 9), ("b", 4)):
        request = new_request(name, [1] * length)
        assert kv.can_start(request, kv.get_computed_blocks(request)) and kv.allocate_slots(request, length) is not None
        kv.mark_computed(request, length)
    usage = kv.usage().groups[0]
    assert {name: getattr(usage, name) for name in slots} == slots
    assert (usage.stale, usage.cached, usage.external, usage.fragmentation) == (0, 0, 0, 0.0)


def test_a_hole_that_is_too_short_for_the_head_is_external() -> None:
    kv = new_manager([12], placement="contiguous", prefix_index="none", admission="guaranteed")
    running = [new_request(name, [1] * 9) for name in "abc"]  # four blocks each
    for request in running:
        assert kv.allocate_slots(request, 9) is not None
    kv.free(running[0])
    kv.free(running[2])
    head = new_request("d", [1] * 13)  # 20 tokens: five blocks
    usage = kv.usage(head).groups[0]
    assert (usage.free, usage.largest_free_run, usage.external, usage.fragmentation) == (32, 16, 32, 0.5)
    assert kv.usage(new_request("e", [1] * 9)).groups[0].external == 0
    assert not kv.can_start(head, kv.get_computed_blocks(head)) and kv.allocate_slots(head, 13) is None
    assert kv.can_start(head, kv.get_computed_blocks(head), without=running[1:2])
    kv.check_integrity(running[1:2])


def test_external_is_what_the_head_cannot_use_for_want_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kv = new_manager([10])
    head = new_request("a", [1] * 10, max_tokens=11)  # 20 tokens are stored: five blocks
    monkeypatch.setattr(type(kv.pools[0].placement), "largest_free_run", property(lambda self: 4))
    usage = kv.usage(head).groups[0]
    assert (usage.external, usage.free, usage.fragmentation) == (40, 40, pytest.approx(0.6))
    assert kv.usage().groups[0].external == 0


def test_a_failing_policy_in_one_group_leaves_all_groups_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    kv = new_manager()
    first = new_request("a", [1] * 12)
    growth = kv.allocate_slots(first, 12)
    assert growth is not None
    first.num_computed_tokens = 12
    kv.mark_computed(first, 12)
    before = kv.usage()

    def broken(owner: str, count: int, reserve: int) -> None:
        raise RuntimeError("a policy is broken")

    monkeypatch.setattr(kv.pools[1].placement, "allocate", broken)
    second = new_request("b", [1] * 30)
    with pytest.raises(RuntimeError):
        kv.allocate_slots(second, 18, kv.get_computed_blocks(second))
    with pytest.raises(RuntimeError):
        kv.allocate_slots(first, 8)
    monkeypatch.undo()
    kv.check_integrity([first])
    assert kv.usage() == before


def test_a_group_that_is_full_refuses_for_all() -> None:
    kv = new_manager([20, 3])
    assert kv.allocate_slots(new_request("a", [1] * 16), 16) is None
    kv.check_integrity([])
    assert kv.capacity == 12 and kv.can_ever_fit(12) and not kv.can_ever_fit(13)


def test_starting_counts_shared_blocks_once_and_idle_ones_as_taken() -> None:
    kv = new_manager([8])
    first = new_request("a", [1] * 17, max_tokens=1)
    growth = kv.allocate_slots(first, 17)  # five blocks
    assert growth is not None
    kv.mark_computed(first, 17)
    second = new_request("b", [1] * 24, max_tokens=1)  # six blocks: four shared, two of three free
    hit = kv.get_computed_blocks(second)
    assert hit.num_tokens == 16 and kv.can_start(second, hit)
    third = new_request("c", [1] * 32, max_tokens=1)  # four more: too many, unless the first gives way
    assert not kv.can_start(third, kv.get_computed_blocks(third))
    assert kv.can_start(third, kv.get_computed_blocks(third), without=[first])
    kv.free(first)
    assert kv.can_start(third, kv.get_computed_blocks(third))
    fourth = new_request("d", [1] * 33, max_tokens=1)
    assert not kv.can_start(fourth, kv.get_computed_blocks(fourth))


def test_the_rest_of_a_running_prefill_is_spoken_for() -> None:
    kv = new_manager([8])
    first = new_request("a", [1] * 24, max_tokens=1)
    kv.allocate_slots(first, 8)  # two of its six blocks
    assert kv.can_start(new_request("b", [2] * 8, max_tokens=1), kv.get_computed_blocks(new_request("b", [2] * 8)))
    assert not kv.can_start(new_request("c", [2] * 9, max_tokens=1), kv.get_computed_blocks(new_request("c", [2] * 9)))


def test_integrity_notices_a_leak() -> None:
    kv = new_manager([8])
    request = new_request("a", [1] * 9)
    kv.allocate_slots(request, 9)
    with pytest.raises(AssertionError, match="does not run"):
        kv.check_integrity([])
    kv.pools[0].share(kv.block_ids(request)[0][:1])
    with pytest.raises(AssertionError, match="reference counts"):
        kv.check_integrity()


def test_block_tables_grow() -> None:
    kv = new_manager([300])
    request = new_request("a", [1] * 1000)
    ids: list[int] = []
    for _ in range(250):
        growth = kv.allocate_slots(request, 4)
        assert growth is not None
        ids += growth.new_blocks[0].tolist()
        request.num_computed_tokens += 4
    assert kv.block_ids(request)[0].tolist() == ids
    assert len(np.unique(ids)) == 250


def test_a_window_keeps_less_than_26_percent_of_gemma3_at_8k_context() -> None:
    """gemma3-270m: three full layers, fifteen with a window of 512; the ideal is (3 · 8192 + 15 · 512) / (18 · 8192) = 21.9 %."""
    size, chunk, layer = 16, 512, 16384
    groups = [LayerGroup("full", 3, 3 * layer), LayerGroup("window512", 15, 15 * layer, 512)]
    kv = KVCacheManager(groups, [600, 70], size, KV_POLICIES["paged"], "numerics", max_tokens_in_flight=chunk)
    request = new_request("long", [i % 1000 for i in range(8192)], max_tokens=100)
    assert kv.can_ever_fit(8291) and kv.can_start(request, kv.get_computed_blocks(request))
    shares = []
    for count in [chunk] * (8192 // chunk) + [1] * 99:
        growth = kv.allocate_slots(request, count)
        assert growth is not None
        growth.commit()
        request.num_computed_tokens += count
        if count == 1:
            request.append_output(7)
            whole = -(-request.num_computed_tokens // size) * 18 * layer
            shares.append(sum(group["bytes"]["held"] for group in kv.usage().as_dict()["groups"]) / whole)
        kv.mark_computed(request, request.num_computed_tokens)
        assert kv.usage().groups[1].stale < size
    kv.check_integrity([request])
    assert 0.218 < min(shares) <= max(shares) < 0.221


def test_stale_slots_of_a_placement_that_reserves() -> None:
    kv = new_manager([12, 12], windows=(0, 6), placement="contiguous", prefix_index="none")
    request = new_request("a", [1] * 19, max_tokens=2)
    assert kv.allocate_slots(request, 19) is not None
    kv.mark_computed(request, 19)
    full, window = kv.usage().groups
    assert (full.held, full.live, full.stale) == (20, 19, 0)
    assert (window.held, window.live, window.tail, window.stale) == (20, 5, 1, 14)  # the next query reads five tokens back


def test_a_shared_block_is_stale_where_all_its_requests_have_left_it_behind() -> None:
    kv = new_manager([20, 16], windows=(0, 6))
    first, second = new_request("a", list(range(12))), new_request("b", list(range(12)))
    assert kv.allocate_slots(first, 12) is not None
    kv.mark_computed(first, 12)  # reads from 7 on: blocks of 4 from the second on, three slots of it stale
    assert kv.usage().groups[1].stale == 3
    hit = kv.get_computed_blocks(second)
    assert (hit.num_tokens, hit.firsts, [len(blocks) for blocks in hit.blocks]) == (8, [0, 0], [2, 2])
    assert kv.allocate_slots(second, 4, hit) is not None  # it reads from 3 on: of its first block three slots are stale, of the next none
    usage = kv.usage().groups[1]
    assert (usage.stale, usage.live) == (3, 1 + 4 + 4)
    kv.free(second)
    assert kv.usage().groups[1].stale == 3


def test_what_reserves_cannot_share_behind_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PagedPlacement, "reserves", True)  # as a plugin's may
    new_manager(windows=(0, 0))
    new_manager(windows=(0, 6), prefix_index="none")
    with pytest.raises(InvalidRequestError, match=r"kv_placement = 'paged': it reserves, .* 'none' only, not 'hash'"):
        new_manager(windows=(0, 6))
