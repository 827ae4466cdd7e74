"""Times the ops that pass over rows, and sampling, against read bandwidth: the bytes each must touch over the time it takes.

    python benchmarks/kernels/bench_rowwise.py --model smollm2 --rows 1 32 512

A cell is the time in microseconds and the percentage of bandwidth. Few rows lie in cache, so more than 100 % is no error. The fastest
of --repeat rounds counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from octavo import _native, envs
from octavo.bench.machine import engine_cpus, machine_line, measure

BLOCK = 16


@dataclass(frozen=True)
class Widths:
    """A model's, in numbers."""

    hidden: int
    mlp: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    activation: int
    """0 SiLU, 1 GELU."""
    qk_norm: bool = False


MODELS = {
    "smollm2": Widths(576, 1536, 49_152, 9, 3, 64, 0),
    "gemma3-270m": Widths(640, 2048, 262_144, 4, 1, 256, 1, qk_norm=True),
}
Q8 = 1 + 4 / 32 + 4 / 32
"""Bytes of a quantized activation: its code, and its share of a group's scale and sum."""
Build = Callable[[str, _native.ThreadPool, int], Callable[[], float]]


def single_op(
    widths: Widths,
    kind: str,
    columns: list[int],
    out: tuple[str, int] | None,
    vectors: list[np.ndarray],
    ints: list[int],
    floats: list[float],
) -> Build:
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
        kv = _native.KVStorage(isa, 1, table.size, BLOCK, widths.kv_heads, widths.head_dim, "bf16") if writes else None
        index = np.arange(rows, dtype=np.int32)
        ends = np.array([0, rows], np.int32), np.array([rows], np.int32)

        def run() -> float:
            program.set_timing(True)
            program.run([kv] if kv else None, index, index, *ends, [table] if kv else [], [index] if kv else [], index)
            return sum(seconds for name, seconds, _ in program.timings() if name == kind)

        return run

    return build


HUGE_PAGE = 2 << 20


def random_logits(rows: int, vocab: int) -> np.ndarray:
    """[rows, vocab], from the start of a large page as a program's own buffers are: how memory happens to lie is worth a factor of two."""
    room = np.empty(4 * rows * vocab + HUGE_PAGE, np.uint8)
    first = -room.ctypes.data % HUGE_PAGE
    logits = room[first : first + 4 * rows * vocab].view(np.float32).reshape(rows, vocab)
    logits[:] = np.random.default_rng(0).normal(0, 3, (rows, vocab))
    return logits


def sampler(vocab: int, temperature: float, top_k: int, top_p: float) -> Build:
    """Sampling one token a row."""

    def build(isa: str, pool: _native.ThreadPool, rows: int) -> Callable[[], float]:
        logits = random_logits(rows, vocab)
        rules = _native.SamplingRules([temperature] * rows, [top_k] * rows, [top_p] * rows, [0.0] * rows, range(rows))

        def run() -> float:
            start = time.perf_counter()
            _native.sample(pool, logits, rules, [0] * rows, isa)
            return time.perf_counter() - start

        return run

    return build


def scorer(vocab: int) -> Build:
    """Log-probabilities of the chosen token and the five likeliest."""

    def build(isa: str, pool: _native.ThreadPool, rows: int) -> Callable[[], float]:
        logits = random_logits(rows, vocab)

        def run() -> float:
            start = time.perf_counter()
            _native.logprobs(pool, logits, np.zeros(rows, np.int32), 5, isa)
            return time.perf_counter() - start

        return run

    return build


def ops(w: Widths) -> dict[str, tuple[Build, float]]:
    """By name: how to build it, and the bytes a row must touch."""
    rope = np.array([100000.0 ** (-2 * j / w.head_dim) for j in range(w.head_dim // 2)])
    q, kv = w.heads * w.head_dim, w.kv_heads * w.head_dim
    q8, ones, vocab = ("q8", w.hidden), [np.ones(w.hidden, np.float32)], w.vocab
    found = {
        "rms_norm → q8": (single_op(w, "rms_norm", [w.hidden], q8, ones, [1], [1e-5]), w.hidden * (4 + Q8)),
        "quantize → q8": (single_op(w, "quantize", [w.hidden], q8, [], [], []), w.hidden * (4 + Q8)),
        "gated_act → q8": (single_op(w, "gated_act", [w.mlp, w.mlp], ("q8", w.mlp), [], [w.activation], []), w.mlp * (8 + Q8)),
        "add": (single_op(w, "add", [w.hidden, w.hidden], ("f32", w.hidden), [], [], []), w.hidden * 12),
        "softcap": (single_op(w, "softcap", [w.hidden], ("f32", w.hidden), [], [], [30.0]), w.hidden * 8),
        "gather": (single_op(w, "gather", [w.hidden], ("f32", w.hidden), [], [], []), w.hidden * 8),
        "rope": (single_op(w, "rope", [q], ("f32", q), [rope], [w.heads, w.head_dim, 0], [1.0]), q * 8),
        "kv_write": (single_op(w, "kv_write", [kv, kv], None, [], [0, 0], []), kv * 12),
        "rope_kv_write": (
            single_op(w, "rope_kv_write", [q, kv, kv], ("f32", q), [rope], [w.heads, w.kv_heads, w.head_dim, 0, 0, 0], [1.0]),
            q * 8 + kv * 12,
        ),
        "sample, greedy": (sampler(vocab, 0.0, 0, 1.0), vocab * 4),
        "sample, temperature": (sampler(vocab, 0.8, 0, 1.0), vocab * 4),
        "sample, top-k 40": (sampler(vocab, 0.8, 40, 1.0), vocab * 4),
        "sample, top-p 0.95": (sampler(vocab, 0.8, 0, 0.95), vocab * 4),
        "logprobs, 5": (scorer(vocab), vocab * 4),
    }
    if w.qk_norm:
        head = [np.ones(w.head_dim, np.float32)]
        found["rms_norm of q by head"] = (single_op(w, "rms_norm", [q], ("f32", q), head, [w.heads], [1e-6]), q * 8)
    return found


MOST_LOGITS = 64
"""Rows that one step samples at most here: more would take gigabytes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), nargs="+", default=list(MODELS), help="whose widths (default: all)")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32, 512])
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--isa", default=envs.isa() or _native.supported_isas()[0])
    parser.add_argument("--threads", type=int, default=envs.num_threads())
    args = parser.parse_args()

    rates = measure(engine_cpus(args.threads), 0.5)
    pool = _native.ThreadPool(list(rates.cpus))
    print(machine_line(args.isa, rates))
    for model in args.model:
        heading = "".join(f"{rows:>18} rows" for rows in args.rows)
        print(f"\n{model}: µs, and percent of read bandwidth\n{'':24}{heading}")
        for name, (build, row_bytes) in ops(MODELS[model]).items():
            cells = []
            for rows in args.rows:
                if row_bytes == 4 * MODELS[model].vocab and rows > MOST_LOGITS:
                    cells.append("–")
                    continue
                run = build(args.isa, pool, rows)
                seconds = min(run() for _ in range(args.repeat))
                cells.append(f"{1e6 * seconds:9.1f}  {100 * rows * row_bytes / seconds / rates.read_bytes_s:5.0f} %")
            print(f"{name:24}" + "".join(f"{text:>23}" for text in cells), flush=True)


if __name__ == "__main__":
    main()
