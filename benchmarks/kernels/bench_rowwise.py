"""Times the ops that pass over rows, and sampling, against read bandwidth: the bytes each must touch over the time it takes.

    python benchmarks/kernels/bench_rowwise.py --rows 1 32 512

Widths are smollm2's. Few rows lie in cache, so more than 100 % of bandwidth is no error. The fastest of --repeat rounds counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from octavo import _native, envs
from octavo.ops.threads import choose_cpus

WIDTH, MLP, VOCAB, HEADS, KV_HEADS, HEAD_DIM, BLOCK = 576, 1536, 49152, 9, 3, 64, 16
Q8 = 1 + 4 / 32 + 4 / 32
"""Bytes of a quantized activation: its code, and its share of a group's scale and sum."""


def single_op(kind: str, columns: list[int], out: tuple[str, int] | None, vectors: list[np.ndarray], ints: list[int], floats: list[float]):
    """A step of one op as a function of its rows: fp32 inputs of ``columns``, an output of (kind, columns)."""

    def build(isa: str, pool: _native.ThreadPool, rows: int) -> Callable[[], float]:
        program = _native.Program(isa, pool)
        inputs = [program.add_buffer("f32", width, "tokens") for width in columns]
        outputs = [] if out is None else [program.add_buffer(out[0], out[1], "logits" if kind == "gather" else "tokens")]
        program.add_op(kind, inputs, outputs, vectors, ints, floats)
        if out is None or out[0] != "f32":  # a program ends with a result in fp32
            program.add_op("softcap", inputs[:1], [program.add_buffer("f32", columns[0], "tokens")], [], [], [1.0])
        for number, width in zip(inputs, columns, strict=True):
            program.write(number, np.random.default_rng(number).standard_normal((rows, width)).astype(np.float32))
        table = np.arange(-(-rows // BLOCK), dtype=np.int32)[None]
        writes = "kv_write" in kind
        kv = _native.KVStorage(isa, 1, table.size, BLOCK, KV_HEADS, HEAD_DIM, "bf16") if writes else None
        index = np.arange(rows, dtype=np.int32)
        ends = np.array([0, rows], np.int32), np.array([rows], np.int32)

        def run() -> float:
            program.set_timing(True)
            program.run([kv] if kv else None, index, index, *ends, [table] if kv else [], [index] if kv else [], index)
            return sum(seconds for name, seconds, _ in program.timings() if name == kind)

        return run

    return build


def sampler(temperature: float, top_k: int, top_p: float):
    """Sampling one token a row."""

    def build(isa: str, pool: _native.ThreadPool, rows: int) -> Callable[[], float]:
        logits = np.random.default_rng(0).normal(0, 3, (rows, VOCAB)).astype(np.float32)
        numbers = [np.full(rows, value, np.float32) for value in (temperature, top_p, 0.0)]
        seeds, zeros = np.arange(rows, dtype=np.uint64), np.zeros(rows, np.int32)
        arguments = (numbers[0], np.full(rows, top_k, np.int32), numbers[1], numbers[2], seeds, zeros)

        def run() -> float:
            start = time.perf_counter()
            _native.sample(pool, logits, *arguments, isa)
            return time.perf_counter() - start

        return run

    return build


def score(isa: str, pool: _native.ThreadPool, rows: int) -> Callable[[], float]:
    """Log-probabilities of the chosen token and the five likeliest."""
    logits = np.random.default_rng(0).normal(0, 3, (rows, VOCAB)).astype(np.float32)

    def run() -> float:
        start = time.perf_counter()
        _native.logprobs(pool, logits, np.zeros(rows, np.int32), 5, isa)
        return time.perf_counter() - start

    return run


ROPE = np.array([100000.0 ** (-j / 32) for j in range(HEAD_DIM // 2)])
Q, KV = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
OPS = {
    "rms_norm → q8": (single_op("rms_norm", [WIDTH], ("q8", WIDTH), [np.ones(WIDTH, np.float32)], [1], [1e-5]), WIDTH * (4 + Q8)),
    "quantize → q8": (single_op("quantize", [WIDTH], ("q8", WIDTH), [], [], []), WIDTH * (4 + Q8)),
    "gated_act → q8": (single_op("gated_act", [MLP, MLP], ("q8", MLP), [], [0], []), MLP * (8 + Q8)),
    "add": (single_op("add", [WIDTH, WIDTH], ("f32", WIDTH), [], [], []), WIDTH * 12),
    "softcap": (single_op("softcap", [WIDTH], ("f32", WIDTH), [], [], [30.0]), WIDTH * 8),
    "gather": (single_op("gather", [WIDTH], ("f32", WIDTH), [], [], []), WIDTH * 8),
    "rope": (single_op("rope", [Q], ("f32", Q), [ROPE], [HEADS, HEAD_DIM, 0], [1.0]), Q * 8),
    "kv_write": (single_op("kv_write", [KV, KV], None, [], [0, 0], []), KV * 12),
    "rope_kv_write": (
        single_op("rope_kv_write", [Q, KV, KV], ("f32", Q), [ROPE], [HEADS, KV_HEADS, HEAD_DIM, 0, 0, 0], [1.0]),
        Q * 8 + KV * 12,
    ),
    "sample, greedy": (sampler(0.0, 0, 1.0), VOCAB * 4),
    "sample, temperature": (sampler(0.8, 0, 1.0), VOCAB * 4),
    "sample, top-k 40": (sampler(0.8, 40, 1.0), VOCAB * 4),
    "sample, top-p 0.95": (sampler(0.8, 0, 0.95), VOCAB * 4),
    "logprobs, 5": (score, VOCAB * 4),
}
"""By name: how to build it, and the bytes a row must touch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32, 512])
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--isa", default=envs.isa() or _native.supported_isas()[0])
    parser.add_argument("--threads", type=int, default=envs.num_threads())
    args = parser.parse_args()

    cpus = choose_cpus(args.threads)
    pool = _native.ThreadPool(cpus)
    bandwidth = _native.machine_rates(cpus, 0.5)["read_bytes_s"]
    print(f"{args.isa}, {len(cpus)} threads; read bandwidth {bandwidth / 1e9:.1f} GB/s")
    for name, (build, row_bytes) in OPS.items():
        for rows in args.rows:
            run = build(args.isa, pool, rows)
            seconds = min(run() for _ in range(args.repeat))
            rate = rows * row_bytes / seconds
            print(f"{name:20} {rows:5} rows  {1e6 * seconds:9.1f} µs  {rate / 1e9:7.1f} GB/s  {100 * rate / bandwidth:6.1f} % of bandwidth")


if __name__ == "__main__":
    main()
