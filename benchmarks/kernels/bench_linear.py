"""Times matrix products against the machine's limits: bytes over read bandwidth, or operations over its int8 (bf16, fp32) rate.

    python benchmarks/kernels/bench_linear.py                                    # every shape of every model, a table each
    python benchmarks/kernels/bench_linear.py --model smollm2 --rows 1 32 512
    python benchmarks/kernels/bench_linear.py --format Q4_K --shape 4096x4096

A cell is the percentage of the nearer limit, and which that is: m, the memory's read bandwidth, or c, arithmetic. With few rows a
matrix is there so many times that all of them come from memory, as they do in a decode step. The last two lines are of a whole
step: all its products, in their own number and order. The fastest of --repeat rounds counts.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace

import numpy as np

from octavo import _native, envs
from octavo.bench.machine import MachineRates, engine_cpus, machine_line, measure
from octavo.weights.formats import FORMATS


@dataclass(frozen=True)
class Matrix:
    """One of a model's matrices, and how many layers have one like it."""

    name: str
    format: str
    outputs: int
    inputs: int
    count: int

    @property
    def stored_bytes(self) -> int:
        """Of one, before it is packed."""
        return self.outputs * FORMATS[self.format].row_bytes(self.inputs)


MODELS: dict[str, list[Matrix]] = {
    "smollm2": [
        Matrix("q, k, v", "Q4_1", 960, 576, 30),
        Matrix("o", "Q4_1", 576, 576, 30),
        Matrix("gate, up", "Q4_1", 3072, 576, 30),
        Matrix("down", "Q4_1", 576, 1536, 30),
        Matrix("head", "Q8_0", 49152, 576, 1),
    ],
    "gemma3-270m": [
        Matrix("q, k", "Q5_0", 1280, 640, 18),
        Matrix("v", "Q5_0", 256, 640, 9),
        Matrix("v", "Q8_0", 256, 640, 9),
        Matrix("o", "Q4_K", 640, 1024, 18),
        Matrix("gate, up", "Q5_0", 4096, 640, 18),
        Matrix("down", "Q4_K", 640, 2048, 9),
        Matrix("down", "Q6_K", 640, 2048, 9),
        Matrix("head", "Q8_0", 262144, 640, 1),
    ],
}
"""Products of a step; the last is the head, which has a row for each request that samples, and no more."""

STREAMED_BYTES = 64 << 20
"""More than caches hold of it."""
FEW_ROWS = 16
HEAD_ROWS = 64
"""The head is not timed for more: no step samples so many at once, and their logits would take half a gigabyte."""


class Products:
    """A program of one linear op a weight, each with its own memory, layer by layer."""

    def __init__(self, isa: str, pool: _native.ThreadPool, matrices: list[Matrix]) -> None:
        self.program = _native.Program(isa, pool)
        self.weights: list[_native.PackedWeight] = []
        self._inputs: list[int] = []
        self._buffers: dict[tuple[str, int, str], int] = {}
        for layer in range(max(matrix.count for matrix in matrices)):
            for matrix in matrices:
                if layer < matrix.count:
                    self._add(isa, pool, matrix)

    @classmethod
    def of_one(cls, isa: str, pool: _native.ThreadPool, matrix: Matrix, rows: int) -> Products:
        """``matrix`` alone: with few rows so often that it comes from memory, else up to four times."""
        count = -(-STREAMED_BYTES // matrix.stored_bytes) if rows < FEW_ROWS else min(4, matrix.count)
        return cls(isa, pool, [replace(matrix, count=count)])

    def _buffer(self, kind: str, columns: int, use: str) -> int:
        """One for each width and use, as a real step shares its own."""
        key = (kind, columns, use)
        if key not in self._buffers:
            self._buffers[key] = self.program.add_buffer(kind, columns, "tokens")
        return self._buffers[key]

    def _add(self, isa: str, pool: _native.ThreadPool, matrix: Matrix) -> None:
        data = np.random.default_rng(0).integers(0, 60, matrix.stored_bytes, np.uint8)
        weight = _native.PackedWeight(isa, pool, matrix.format, matrix.outputs, matrix.inputs, data)
        x = self._buffer("f32", matrix.inputs, "in")
        taken = x
        if weight.activation != "f32":
            taken = self._buffer(weight.activation, matrix.inputs, "quantized")
            self.program.add_op("quantize", [x], [taken], [], [], [])
        self.program.add_op("linear", [taken], [self._buffer("f32", matrix.outputs, "out")], [weight, None], [1, 0], [])
        self.weights.append(weight)
        self._inputs.append(x)

    def fill(self, rows: int) -> None:
        """Random inputs of so many rows."""
        for x, weight in zip(self._inputs, self.weights, strict=True):
            self.program.write(x, np.random.default_rng(1).standard_normal((rows, weight.shape[1])).astype(np.float32))

    def run(self, rows: int) -> float:
        """Seconds of one step's linear ops; ``fill`` comes before."""
        index = np.arange(rows, dtype=np.int32)
        self.program.set_timing(True)
        self.program.run(None, index, index, np.array([0, rows], np.int32), np.array([rows], np.int32), [], [], index[:1])
        return sum(seconds for kind, seconds, _ in self.program.timings() if kind == "linear")

    def seconds(self, rows: int, repeat: int) -> float:
        """The fastest step's."""
        self.fill(rows)
        return min(self.run(rows) for _ in range(repeat))

    def least(self, rates: MachineRates, rows: int) -> tuple[float, float]:
        """Seconds that these products need at the machine's limits: by memory, by arithmetic."""
        by_compute = sum(2 * rows * w.shape[0] * w.shape[1] / rates.of(w.activation) for w in self.weights)
        return sum(weight.nbytes for weight in self.weights) / rates.read_bytes_s, by_compute


def cell(products: Products, rates: MachineRates, rows: int, repeat: int) -> tuple[str, float]:
    """Percent of the nearer limit, with its letter; and the seconds taken."""
    seconds = products.seconds(rows, repeat)
    by_memory, by_compute = products.least(rates, rows)
    return f"{100 * max(by_memory, by_compute) / seconds:5.0f} {'m' if by_memory > by_compute else 'c'}", seconds


def table(title: str, matrices: list[Matrix], rows: list[int], setting: tuple[str, _native.ThreadPool, MachineRates, int]) -> None:
    """One line a matrix, then the whole step's percent of the limit, and its rows a second."""
    isa, pool, rates, repeat = setting
    print(f"\n{title}: percent of the limit, by rows (m: memory, c: arithmetic)\n{'':32}" + "".join(f"{n:>8}" for n in rows))
    for matrix in matrices:
        cells = []
        for n in rows:
            timed = matrix.count > 1 or len(matrices) == 1 or n <= HEAD_ROWS
            cells.append(cell(Products.of_one(isa, pool, matrix, n), rates, n, repeat)[0] if timed else "–")
        name = f"{matrix.name:9} {matrix.format} {matrix.outputs} × {matrix.inputs}"
        print(f"{name:32}" + "".join(f"{text:>8}" for text in cells), flush=True)
    if len(matrices) > 1:
        step, body = Products(isa, pool, matrices), Products(isa, pool, matrices[:-1])
        found = [cell(step if n <= HEAD_ROWS else body, rates, n, repeat) for n in rows]
        print(f"{'the step (no head above ' + str(HEAD_ROWS) + ' rows)':32}" + "".join(f"{text:>8}" for text, _ in found))
        print(f"{'… rows a second':32}" + "".join(f"{n / seconds:8,.0f}" for n, (_, seconds) in zip(rows, found, strict=True)))


def packing_seconds(isa: str, pool: _native.ThreadPool, matrices: list[Matrix]) -> float:
    data = {matrix: np.ones(matrix.stored_bytes, np.uint8) for matrix in matrices}
    start = time.perf_counter()
    kept = [_native.PackedWeight(isa, pool, m.format, m.outputs, m.inputs, data[m]) for m in matrices for _ in range(m.count)]
    seconds = time.perf_counter() - start
    del kept
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), nargs="+", default=list(MODELS), help="whose products (default: all)")
    parser.add_argument("--body", action="store_true", help="without the head")
    parser.add_argument("--format", choices=list(FORMATS), help="one matrix of this format instead")
    parser.add_argument("--shape", default="4096x4096", help="of that matrix: outputs x inputs")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 12, 16, 32, 64, 128, 512])
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--isa", default=envs.isa() or _native.supported_isas()[0])
    parser.add_argument("--threads", type=int, default=envs.num_threads())
    args = parser.parse_args()

    rates = measure(engine_cpus(args.threads), 0.5)
    pool = _native.ThreadPool(list(rates.cpus))
    print(machine_line(args.isa, rates))
    setting = (args.isa, pool, rates, args.repeat)
    if args.format:
        outputs, inputs = map(int, args.shape.split("x"))
        table(args.format, [Matrix("", args.format, outputs, inputs, 4)], args.rows, setting)
        return
    for model in args.model:
        matrices = MODELS[model][:-1] if args.body else MODELS[model]
        table(model, matrices, args.rows, setting)
        print(f"packing all: {1e3 * packing_seconds(args.isa, pool, matrices):.0f} ms")


if __name__ == "__main__":
    main()
