"""What a program refuses: operands when an op is added, inputs when a step is run. Nothing of it may reach memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo import _native
from octavo.weights.formats import FORMATS
from support.native_cases import ISAS, POOL, packed, random_stored

ISA = ISAS[0]
F = np.ones(64, np.float32)


def weight(name: str = "Q4_1", rows: int = 64, columns: int = 64) -> _native.PackedWeight:
    return packed(ISA, FORMATS[name], random_stored(FORMATS[name], rows, columns, seed=0))


def buffers() -> tuple[_native.Program, dict[str, int]]:
    program = _native.Program(ISA, POOL)
    kinds = {"f": "f32", "g": "f32", "q": "q8", "b": "bf16"}
    numbers = {name: program.add_buffer(kind, 64, "tokens") for name, kind in kinds.items()}
    numbers["narrow"] = program.add_buffer("f32", 32, "tokens")
    numbers["logits"] = program.add_buffer("f32", 64, "logits")
    return program, numbers


WRONG: list[tuple[str, str, str, list[Any], list[int], list[float], str]] = [
    ("dance", "f", "f", [], [], [], "'dance' is not a kind of op"),
    ("add", "f", "g", [], [], [], "op add: 1 inputs, not 2"),
    ("add", "f narrow", "g", [], [], [], "input 1 is f32 of 32 columns, not f32 of 64"),
    ("add", "f q", "g", [], [], [], "input 1 is q8"),
    ("add", "f logits", "g", [], [], [], "differ in rows"),
    ("add", "f f", "narrow", [], [], [], "output 0 is f32 of 32 columns"),
    ("rms_norm", "f", "g", [F], [3], [1e-5], "64 columns are no multiple of heads = 3"),
    ("rms_norm", "f", "g", [F], [2], [1e-5], "weight 0 has 64 entries, not 32"),
    ("rms_norm", "f", "g", [None], [1], [1e-5], "weight 0 is not a fp32 vector"),
    ("rms_norm", "f", "g", [F], [0], [1e-5], "heads = 0 is not in 1"),
    ("quantize", "f", "g", [], [], [], "output 0 is f32, not q8 or bf16"),
    ("quantize", "q", "b", [], [], [], "input 0 is q8"),
    ("linear", "f", "g", [weight(), None], [1, 0], [], "weight 0 takes q8 inputs, not f32"),
    ("linear", "q", "g", [weight("BF16"), None], [1, 0], [], "weight 0 takes bf16 inputs, not q8"),
    ("linear", "q", "g", [weight(columns=32), None], [1, 0], [], "weight 0 has 32 columns, its input 64"),
    ("linear", "q", "narrow", [weight(), None], [1, 0], [], "output 0 is f32 of 32 columns, not f32 of 64"),
    ("linear", "q", "g", [weight(), F[:3]], [1, 0], [], "weight 1 has 3 entries, not 64"),
    ("linear", "q", "g", [weight()], [1, 0], [], "1 weights, not 2"),
    ("linear", "q narrow", "g", [weight(), None], [1, 1], [], "input 1 is f32 of 32 columns"),
    ("linear", "q", "g", [F, None], [1, 0], [], "weight 0 is not a matrix"),
    ("linear", "q", "g g", [weight(), weight(), None, None], [2, 0], [], "two outputs are one buffer"),
    ("linear", "f", "f", [weight("F32"), None], [1, 0], [], "output 0 may not be input 0"),
    ("linear", "q", "g", [weight(), None], [0, 0], [], "n = 0 is not in 1"),
    ("gated_linear", "q", "g", [weight(), weight(rows=32)], [0], [], "gate and up differ in rows"),
    ("gated_linear", "q", "g", [weight(), weight()], [2], [], "activation = 2 is not in 0 … 1"),
    ("rope", "f", "f", [F[:8]], [2, 16, 0], [1.0], "input 0 is f32 of 64 columns, not f32 of 32"),
    ("rope", "f", "f", [F[:9]], [4, 16, 0], [1.0], "9 frequencies do not fit head_dim = 16"),
    ("rope", "logits", "logits", [F[:8]], [4, 16, 0], [1.0], "input 0 has logits' rows"),
    ("attention", "f", "f", [None], [0, 0, 4, 0, 0], [1.0, 0.0], "output 0 may not be input 0"),
    ("attention", "f", "g", [F], [0, 0, 4, 0, 0], [1.0, 0.0], "weight 0 has 64 entries, not 4"),
    ("softcap", "f", "f", [], [], [0.0], "cap = 0.000000 is not positive"),
    ("gather", "f", "g", [], [], [], "from tokens' rows to logits' rows"),
    ("embed", "", "logits", [weight()], [], [1.0], "output 0 has logits' rows"),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: f"{case[0]}: {case[-1]}")
def test_a_wrong_operand_is_named(case: tuple[str, str, str, list[Any], list[int], list[float], str]) -> None:
    kind, inputs, outputs, weights, ints, floats, message = case
    program, numbers = buffers()
    with pytest.raises(ValueError, match=message):
        program.add_op(kind, [numbers[n] for n in inputs.split()], [numbers[n] for n in outputs.split()], weights, ints, floats)


def test_buffers_are_checked() -> None:
    program, numbers = buffers()
    with pytest.raises(ValueError, match="buffer: 77 is not one of the program's 6"):
        program.add_op("add", [numbers["f"], 77], [numbers["f"]], [], [], [])
    with pytest.raises(ValueError, match="kind: 'f64'"):
        program.add_buffer("f64", 1, "tokens")
    with pytest.raises(ValueError, match="rows: 'words'"):
        program.add_buffer("f32", 1, "words")
    with pytest.raises(ValueError, match="columns: 0"):
        program.add_buffer("f32", 0, "tokens")
    with pytest.raises(ValueError, match="only f32 buffers"):
        program.write(numbers["q"], np.zeros((1, 64), np.float32))
    with pytest.raises(ValueError, match="values: 3 columns, not 64"):
        program.write(numbers["f"], np.zeros((1, 3), np.float32))


HEADS, KV_HEADS, HEAD_DIM, BLOCK, BLOCKS, VOCAB = 4, 2, 16, 8, 10, 40


def model(window: int = 0) -> _native.Program:
    """Embedding, KV write, attention and logits: the ops that take indices."""
    program = _native.Program(ISA, POOL)
    embedding = packed(ISA, FORMATS["F32"], random_stored(FORMATS["F32"], VOCAB, HEADS * HEAD_DIM, seed=0))
    to_k = packed(ISA, FORMATS["F32"], random_stored(FORMATS["F32"], KV_HEADS * HEAD_DIM, HEADS * HEAD_DIM, seed=1))
    x, out = (program.add_buffer("f32", HEADS * HEAD_DIM, "tokens") for _ in range(2))
    k, v = (program.add_buffer("f32", KV_HEADS * HEAD_DIM, "tokens") for _ in range(2))
    last = program.add_buffer("f32", HEADS * HEAD_DIM, "logits")
    program.add_op("embed", [], [x], [embedding], [], [1.0])
    program.add_op("linear", [x], [k, v], [to_k, to_k, None, None], [2, 0], [])
    program.add_op("kv_write", [k, v], [], [], [0, 0], [])
    program.add_op("attention", [x], [out], [None], [0, 0, HEADS, window, 0], [0.25, 0.0])
    program.add_op("gather", [out], [last], [], [], [])
    return program


def storage(**changes: Any) -> _native.KVStorage:
    shape = {"num_layers": 1, "num_blocks": BLOCKS, "block_size": BLOCK, "num_kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "dtype": "fp32"}
    return _native.KVStorage(ISA, **(shape | changes))


def a_step() -> dict[str, Any]:
    """Two sequences: 3 rows at positions 9 … 11 in blocks 4, 7, and one row at position 0 in block 2."""
    ints = lambda *values: np.array(values, np.int32)  # noqa: E731
    return {
        "token_ids": ints(1, 2, 3, 39),
        "positions": ints(9, 10, 11, 0),
        "query_start": ints(0, 3, 4),
        "seq_lens": ints(12, 1),
        "block_tables": [np.array([[4, 7], [2, -1]], np.int32)],
        "slot_mapping": [ints(57, 58, 59, 16)],
        "logits_rows": ints(2, 3),
    }


def test_a_good_step_runs() -> None:
    assert model().run(storage(), **a_step()).shape == (2, HEADS * HEAD_DIM)


@pytest.mark.parametrize(
    ("field", "index", "value", "message"),
    [
        ("token_ids", 1, VOCAB, r"token_ids\[1\]: 40 is not in 0 … 40 - 1"),
        ("token_ids", 0, -1, r"token_ids\[0\]: -1"),
        ("positions", 2, 12, r"positions\[2\]: 12, where seq_lens\[0\] asks for 11"),
        ("positions", 3, -1, r"positions\[3\]: -1"),
        ("query_start", 0, 1, r"query_start\[0\]: 1 is not 0"),
        ("query_start", 1, 0, r"query_start\[0\]: runs must rise"),
        ("query_start", 1, 9, r"query_start\[0\]: runs must rise"),
        ("query_start", 2, 5, r"query_start\[1\]"),
        ("seq_lens", 1, 0, r"seq_lens\[1\]: 0 is less than the sequence's rows"),
        ("seq_lens", 0, 2**31 - 1, r"positions\[0\]"),
        ("block_tables", (0, 1), BLOCKS, r"block_tables\[0\]\[0\] from 0 on\[1\]: 10"),
        ("block_tables", (1, 0), -1, r"block_tables\[0\]\[1\] from 0 on\[0\]: -1"),
        ("slot_mapping", 0, BLOCKS * BLOCK, r"slot_mapping\[0\]\[0\]: 80"),
        ("slot_mapping", 3, -1, r"slot_mapping\[0\]\[3\]: -1"),
        ("logits_rows", 1, 4, r"logits_rows\[1\]: 4"),
        ("logits_rows", 1, 1, r"logits_rows: they must rise"),
    ],
)
def test_an_index_out_of_bounds_is_named(field: str, index: Any, value: int, message: str) -> None:
    step = a_step()
    array = step[field][0] if isinstance(step[field], list) else step[field]
    array[index] = value
    with pytest.raises(ValueError, match=message):
        model().run(storage(), **step)


@pytest.mark.parametrize("field", ["positions", "query_start", "slot_mapping", "block_tables"])
def test_a_short_array_is_named(field: str) -> None:
    step = a_step()
    step[field] = [step[field][0][:-1].copy()] if isinstance(step[field], list) else step[field][:-1].copy()
    with pytest.raises(ValueError, match=field):
        model().run(storage(), **step)


def test_a_table_too_narrow_for_its_sequences_is_named() -> None:
    step = a_step()
    step["block_tables"] = [step["block_tables"][0][:, :1].copy()]
    with pytest.raises(ValueError, match="1 columns, where sequence 0 has 2 blocks"):
        model().run(storage(), **step)


def test_blocks_behind_the_window_are_not_looked_at() -> None:
    step = a_step()
    step["block_tables"][0][0, 0] = -1
    model(window=2).run(storage(), **step)
    with pytest.raises(ValueError, match=r"block_tables\[0\]\[0\] from 0 on\[0\]: -1"):
        model(window=3).run(storage(), **step)


def test_storage_that_does_not_fit_is_named() -> None:
    for changes in ({"num_kv_heads": 4}, {"head_dim": 32}, {"num_kv_heads": 1, "head_dim": 32}):
        with pytest.raises(ValueError, match="do not fit"):
            model().run(storage(**changes), **a_step())
    for none in (None, []):
        with pytest.raises(ValueError, match="there is no KV of group 0"):
            model().run(none, **a_step())
    with pytest.raises(ValueError, match="the step has no block table or slots of group 0"):
        model().run(storage(), **(a_step() | {"block_tables": []}))
    with pytest.raises(ValueError, match="token_ids: at least one"):
        empty = np.zeros(0, np.int32)
        model().run(storage(), **(a_step() | {"token_ids": empty, "positions": empty}))


@pytest.mark.skipif(len(ISAS) < 2, reason="one instruction set only")
def test_en_09_storage_of_another_isa_is_refused() -> None:
    other = _native.KVStorage(ISAS[1], 1, BLOCKS, BLOCK, KV_HEADS, HEAD_DIM, "fp32")
    with pytest.raises(ValueError, match=f"the KV storage is laid out for {ISAS[1]}"):
        model().run(other, **a_step())


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_whatever_the_integers_the_answer_is_a_result_or_an_error(data: st.DataObject) -> None:
    step = a_step()
    arrays = [array for value in step.values() for array in (value if isinstance(value, list) else [value])]
    for _ in range(data.draw(st.integers(1, 3))):
        array = data.draw(st.sampled_from(arrays)).reshape(-1)
        array[data.draw(st.integers(0, array.size - 1))] = data.draw(st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 90))
    try:
        logits = model().run(storage(), **step)
    except ValueError:
        return
    assert np.isfinite(logits).all()


def test_arrays_of_another_type_are_refused() -> None:
    for name in ("token_ids", "logits_rows"):
        step = a_step()
        step[name] = step[name].astype(np.int64)
        with pytest.raises(TypeError):
            model().run(storage(), **step)


def test_timings_count_calls_by_kind() -> None:
    program = model()
    program.set_timing(True)
    for _ in range(3):
        program.run(storage(), **a_step())
    calls = {kind: count for kind, seconds, count in program.timings() if seconds > 0}
    assert calls == {"embed": 3, "linear": 3, "kv_write": 3, "attention": 3, "gather": 3}
    program.set_timing(False)
    program.run(storage(), **a_step())
    assert all(count == 0 for _, _, count in program.timings())


def test_fewer_rows_after_many_and_many_after_few() -> None:
    program, numbers = buffers()
    program.add_op("add", [numbers["f"], numbers["f"]], [numbers["g"]], [], [], [])
    for tokens in (3, 500, 2, 900):
        values = np.random.default_rng(tokens).standard_normal((tokens, 64)).astype(np.float32)
        program.write(numbers["f"], values)
        rows = np.arange(tokens, dtype=np.int32)
        got = program.run(None, rows, rows, np.array([0, tokens], np.int32), np.array([tokens], np.int32), [], [], rows[:1])
        np.testing.assert_array_equal(got, 2 * values)


def test_a_view_outlives_the_run_that_grows_its_buffer() -> None:
    program, numbers = buffers()
    program.add_op("add", [numbers["f"], numbers["f"]], [numbers["g"]], [], [], [])

    def step(tokens: int) -> np.ndarray:
        program.write(numbers["f"], np.full((tokens, 64), tokens, np.float32))
        rows = np.arange(tokens, dtype=np.int32)
        return program.run(None, rows, rows, np.array([0, tokens], np.int32), np.array([tokens], np.int32), [], [], rows[:1])

    views = [step(tokens) for tokens in (1, 9000, 40000)]
    assert [float(view[0, 0]) for view in views] == [2, 18000, 80000]


def test_a_step_may_want_no_logits() -> None:
    step = a_step() | {"logits_rows": np.zeros(0, np.int32)}
    assert model().run(storage(), **step).shape == (0, HEADS * HEAD_DIM)
