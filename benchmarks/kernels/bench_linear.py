"""Times matrix products against the machine's limits: bytes over read bandwidth, or operations over its int8 (bf16, fp32) rate.

    python benchmarks/kernels/bench_linear.py --model smollm2 --rows 1 32 512
    python benchmarks/kernels/bench_linear.py --format Q4_K --shape 4096x4096

For each row count: the time of all products of a step (each weight once, in order, so that weights come from memory as they do
in decoding), the rate, and the percentage of the nearer limit. The fastest of --repeat rounds counts.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from octavo import _native, envs
from octavo.ops.threads import choose_cpus
from octavo.weights.formats import FORMATS

MODELS: dict[str, list[tuple[str, int, int, int]]] = {
    "smollm2": [
        ("Q4_1", 960, 576, 30),
        ("Q4_1", 576, 576, 30),
        ("Q4_1", 3072, 576, 30),
        ("Q4_1", 576, 1536, 30),
        ("Q8_0", 49152, 576, 1),
    ],
    "gemma3-270m": [
        ("Q5_0", 1280, 640, 18),
        ("Q8_0", 256, 640, 18),
        ("Q4_K", 640, 1024, 18),
        ("Q5_0", 4096, 640, 18),
        ("Q6_K", 640, 2048, 18),
        ("Q8_0", 262144, 640, 1),
    ],
}
"""Products of a step: format, outputs, inputs, how often. The last is the head."""


class Products:
    """A program of one linear op a weight, each with its own memory."""

    def __init__(self, isa: str, pool: _native.ThreadPool, shapes: list[tuple[str, int, int, int]]) -> None:
        self.program = _native.Program(isa, pool)
        self.weights: list[_native.PackedWeight] = []
        self._inputs: list[int] = []
        count = max(count for *_, count in shapes)
        for layer in range(count):
            for name, out, columns, times in shapes:
                if layer < times:
                    self._add(isa, pool, name, out, columns)

    def _add(self, isa: str, pool: _native.ThreadPool, name: str, out: int, columns: int) -> None:
        fmt = FORMATS[name]
        data = np.random.default_rng(0).integers(0, 60, out * fmt.row_bytes(columns), np.uint8)
        weight = _native.PackedWeight(isa, pool, name, out, columns, data)
        x = self.program.add_buffer("f32", columns, "tokens")
        taken = x
        if weight.activation != "f32":
            taken = self.program.add_buffer(weight.activation, columns, "tokens")
            self.program.add_op("quantize", [x], [taken], [], [], [])
        y = self.program.add_buffer("f32", out, "tokens")
        self.program.add_op("linear", [taken], [y], [weight, None], [1, 0], [])
        self.weights.append(weight)
        self._inputs.append(x)

    def seconds(self, rows: int, repeat: int) -> float:
        """The fastest step's time in linear ops."""
        for x, weight in zip(self._inputs, self.weights, strict=True):
            self.program.write(x, np.random.default_rng(1).standard_normal((rows, weight.shape[1])).astype(np.float32))
        index = np.arange(rows, dtype=np.int32)
        best = float("inf")
        for _ in range(repeat):
            self.program.set_timing(True)
            self.program.run(None, index, index, np.array([0, rows], np.int32), np.array([rows], np.int32), [], [], index[:1])
            best = min(best, sum(seconds for kind, seconds, _ in self.program.timings() if kind == "linear"))
        return best


RATES = {"q8": "int8_ops_s", "bf16": "bf16_flops_s", "f32": "fp32_flops_s"}


def report(products: Products, rates: dict[str, float], rows: int, repeat: int) -> str:
    seconds = products.seconds(rows, repeat)
    nbytes = sum(weight.nbytes for weight in products.weights)
    ops = {kind: sum(2 * rows * w.shape[0] * w.shape[1] for w in products.weights if w.activation == kind) for kind in RATES}
    by_memory = nbytes / rates["read_bytes_s"]
    by_compute = sum(count / rates[RATES[kind]] for kind, count in ops.items())
    limit, percent = ("bandwidth" if by_memory > by_compute else "compute"), 100 * max(by_memory, by_compute) / seconds
    return (
        f"{rows:5} rows  {1e3 * seconds:9.3f} ms  {rows / seconds:9.1f} rows/s  {nbytes / seconds / 1e9:6.1f} GB/s"
        f"  {sum(ops.values()) / seconds / 1e9:7.1f} Gop/s  {percent:5.1f} % of {limit}"
    )


def packing_seconds(isa: str, pool: _native.ThreadPool, shapes: list[tuple[str, int, int, int]]) -> float:
    data = {shape: np.ones(shape[1] * FORMATS[shape[0]].row_bytes(shape[2]), np.uint8) for shape in shapes}
    start = time.perf_counter()
    kept = [_native.PackedWeight(isa, pool, s[0], s[1], s[2], data[s]) for s in shapes for _ in range(s[3])]
    seconds = time.perf_counter() - start
    del kept
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), default="smollm2", help="whose products (default: smollm2)")
    parser.add_argument("--body", action="store_true", help="without the head")
    parser.add_argument("--format", choices=list(FORMATS), help="one matrix of this format instead")
    parser.add_argument("--shape", default="4096x4096", help="of that matrix: outputs x inputs")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 12, 16, 32, 64, 128, 512])
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--isa", default=envs.isa() or _native.supported_isas()[0])
    parser.add_argument("--threads", type=int, default=envs.num_threads())
    args = parser.parse_args()

    cpus = choose_cpus(args.threads)
    pool = _native.ThreadPool(cpus)
    rates = _native.machine_rates(cpus, 0.5)
    shapes = MODELS[args.model][:-1] if args.body else MODELS[args.model]
    if args.format:
        out, columns = map(int, args.shape.split("x"))
        shapes = [(args.format, out, columns, 1)]
    print(f"{args.isa}, {len(cpus)} threads; " + ", ".join(f"{name} {value / 1e9:.1f} G" for name, value in rates.items()))
    print(f"packing: {1e3 * packing_seconds(args.isa, pool, shapes):.0f} ms")
    products = Products(args.isa, pool, shapes)
    for rows in args.rows:
        print(report(products, rates, rows, args.repeat))


if __name__ == "__main__":
    main()
