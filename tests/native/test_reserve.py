"""What was reserved is enough for every step within its limits, and a step beyond them shows in the counters."""

from __future__ import annotations

import random
import resource

import numpy as np
import pytest

from octavo import _native
from octavo.weights.formats import FORMATS
from support.native_cases import ISAS, POOL, POOL_2, packed, random_stored

HEADS, KV_HEADS, DIM, BLOCK, BLOCKS, VOCAB = 8, 2, 16, 16, 160, 50
LENGTH, TOKENS, SEQS = 2000, 48, 6
ISA = ISAS[0]


def program(pool: _native.ThreadPool, heads: int, out: str) -> _native.Program:
    """Every op that works in memory beside its buffers: rope tables, attention's scratch, several matrices in one linear."""
    model = _native.Program(ISA, pool)
    width, kv_width = heads * DIM, KV_HEADS * DIM
    f32 = FORMATS["F32"]
    embedding = packed(ISA, f32, random_stored(f32, VOCAB, width, seed=0))
    to_k = packed(ISA, f32, random_stored(f32, kv_width, width, seed=1))
    x, q = (model.add_buffer("f32", width, "tokens") for _ in range(2))
    k, v = (model.add_buffer("f32", kv_width, "tokens") for _ in range(2))
    attended, last = model.add_buffer(out, width, "tokens"), model.add_buffer("f32", width, "logits")
    model.add_op("embed", [], [x], [embedding], [], [1.0])
    model.add_op("linear", [x], [k, v], [to_k, to_k, None, None], [2, 0], [])
    frequencies = np.linspace(1.0, 0.1, DIM // 2)
    model.add_op("rope_kv_write", [x, k, v], [q], [frequencies], [heads, KV_HEADS, DIM, 0, 0, 0], [1.0])
    model.add_op("attention", [q], [attended], [None], [0, 0, heads, 0, 0], [0.25, 0.0])
    model.add_op("gather", [x], [last], [], [], [])
    return model


def run(model: _native.Program, kv: _native.KVStorage, counts: list[int], lengths: list[int], logits: int) -> None:
    """A step of ``counts`` tokens, each the last of a sequence of its length; all sequences are in the same blocks."""
    starts = np.cumsum([0, *counts]).astype(np.int32)
    positions = np.concatenate([np.arange(n - c, n) for c, n in zip(counts, lengths, strict=True)]).astype(np.int32)
    table = np.tile(np.arange(BLOCKS, dtype=np.int32), (len(counts), 1))
    rows = np.arange(logits, dtype=np.int32)
    model.run(kv, positions % VOCAB, positions, starts, np.array(lengths, np.int32), [table], [positions], rows)


def storage() -> _native.KVStorage:
    return _native.KVStorage(ISA, 1, BLOCKS, BLOCK, KV_HEADS, DIM, "bf16", bf16_products=True)


# Two heads a KV head of 16: groups of 32 outputs end with an item. One head: they span two, and are quantized from fp32 scratch.
@pytest.mark.parametrize("heads", [HEADS, KV_HEADS])
@pytest.mark.parametrize("out", ["q8", "f32"])
@pytest.mark.parametrize("pool", [POOL, POOL_2], ids=["1 thread", "2 threads"])
def test_steps_within_the_limits_allocate_nothing(pool: _native.ThreadPool, heads: int, out: str) -> None:
    model, kv, rng = program(pool, heads, out), storage(), random.Random(0)
    model.reserve(kv, TOKENS, TOKENS, SEQS, LENGTH)
    before = _native.counters()
    run(model, kv, [TOKENS], [LENGTH], TOKENS)
    run(model, kv, [TOKENS - SEQS + 1] + [1] * (SEQS - 1), [LENGTH] * SEQS, SEQS)
    run(model, kv, [TOKENS // SEQS] * SEQS, [LENGTH] * SEQS, 1)
    run(model, kv, [1], [LENGTH], 1)
    for _ in range(40):
        counts = [rng.randint(1, TOKENS // SEQS) for _ in range(rng.randint(1, SEQS))]
        run(model, kv, counts, [rng.randint(count, LENGTH) for count in counts], rng.randint(1, sum(counts)))
    assert _native.counters() == before


@pytest.mark.parametrize(
    ("counts", "lengths"), [([TOKENS + 1], [LENGTH]), ([1] * (TOKENS + 20), [LENGTH] * (TOKENS + 20)), ([TOKENS], [BLOCK * BLOCKS])]
)
def test_a_step_beyond_them_is_counted(counts: list[int], lengths: list[int]) -> None:
    model, kv = program(POOL_2, HEADS, "q8"), storage()
    model.reserve(kv, TOKENS, TOKENS, 1, LENGTH // 2)
    before = _native.counters()
    run(model, kv, counts, lengths, 1)
    allocations, nbytes, programs, threads = (now - then for now, then in zip(_native.counters(), before, strict=True))
    assert allocations > 0 and nbytes > 0
    assert programs == threads == 0


def test_programs_and_threads_are_counted() -> None:
    before = _native.counters()
    _native.ThreadPool([-1, -1, -1]).close()
    program(POOL, HEADS, "f32")
    after = _native.counters()
    assert (after[2] - before[2], after[3] - before[3]) == (1, 2)  # the caller is a pool's first thread


def test_reserving_needs_the_kv_that_ops_use() -> None:
    model = program(POOL, HEADS, "f32")
    with pytest.raises(ValueError, match=r"op 2 rope_kv_write: there is no KV of group 0"):
        model.reserve(None, TOKENS, TOKENS, SEQS, LENGTH)
    wider = _native.KVStorage(ISA, 1, BLOCKS, BLOCK, 4 * HEADS, DIM, "bf16", bf16_products=True)
    with pytest.raises(ValueError, match=r"op 2 rope_kv_write: 32 columns in 2 heads do not fit 32 KV heads of 16"):
        model.reserve(wider, TOKENS, TOKENS, SEQS, LENGTH)


@pytest.mark.parametrize("place", range(4))
def test_limits_that_no_step_can_have_are_refused_and_change_nothing(place: int) -> None:
    model, kv = program(POOL, HEADS, "q8"), storage()
    limits = [TOKENS, TOKENS, SEQS, LENGTH]
    limits[place] = 2**62
    with pytest.raises(ValueError, match=r"a step's limit: 4611686018427387904 is more than 2\^31 - 1"):
        model.reserve(kv, *limits)
    assert model.reserved_bytes == 0
    run(model, kv, [TOKENS], [LENGTH], 1)


def test_what_was_touched_costs_a_step_no_pages() -> None:
    def faults_of_a_step(touched: bool) -> int:
        model, kv = program(POOL_2, HEADS, "q8"), storage()
        kv.touch_blocks(0, BLOCKS)
        model.reserve(kv, 4096, 4096, 64, LENGTH)
        for first in range(0, model.reserved_bytes if touched else 0, 1 << 20):
            model.touch(first, min(1 << 20, model.reserved_bytes - first))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        run(model, kv, [LENGTH], [LENGTH], 64)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert faults_of_a_step(touched=True) < faults_of_a_step(touched=False) / 4


def test_touching_past_the_end_is_harmless() -> None:
    model, kv = program(POOL, HEADS, "f32"), storage()
    model.touch(0, 1 << 30)
    model.reserve(kv, TOKENS, TOKENS, SEQS, LENGTH)
    model.touch(model.reserved_bytes, 1)
    model.touch(model.reserved_bytes - 1, 1 << 30)
    reserved = model.reserved_bytes
    run(model, kv, [4 * TOKENS], [LENGTH], 1)  # what has been replaced since is left alone
    values = model.read(0)
    model.touch(0, 1 << 30)
    np.testing.assert_array_equal(model.read(0), values)
    assert values.any() and model.reserved_bytes == reserved


def test_sampling_works_in_its_scratch() -> None:
    rows, vocab = 7, 3000
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((rows, vocab)).astype(np.float32)
    scratch = _native.SamplingScratch(POOL_2, vocab)
    before = _native.counters()
    for temperature, top_k, top_p, min_p in ((0, 0, 1, 0), (1, 0, 1, 0), (0.7, vocab - 1, 0.9, 0.1), (1.5, 0, 0.99999, 0)):
        rules = _native.SamplingRules([temperature] * rows, [top_k] * rows, [top_p] * rows, [min_p] * rows, range(rows))
        ids = _native.sample(POOL_2, logits, rules, [3] * rows, ISA, scratch)
        assert ids == _native.sample(POOL, logits[:, :], rules, [3] * rows, ISA, scratch)
    _native.logprobs(POOL_2, logits, np.zeros(rows, np.int32), 20, ISA, scratch)
    assert _native.counters() == before
    _native.sample(POOL_2, np.zeros((rows, 2 * vocab), np.float32), rules, [3] * rows, ISA, scratch)
    assert _native.counters() > before


def test_a_scratch_of_too_few_threads_is_refused() -> None:
    scratch = _native.SamplingScratch(POOL, 10)
    with pytest.raises(ValueError, match="made for a pool of 1 threads, not 2"):
        _native.logprobs(POOL_2, np.zeros((2, 10), np.float32), np.zeros(2, np.int32), 1, ISA, scratch)
