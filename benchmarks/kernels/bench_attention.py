"""Times attention over paged K and V against the machine's limits: bytes over read bandwidth, operations over the rate of their arithmetic.

    python benchmarks/kernels/bench_attention.py                                          decodes and prefill chunks of smollm2
    python benchmarks/kernels/bench_attention.py --case 1x8192 512+8704 --kv-dtype bf16 fp8_e4m3:guarded int8
    python benchmarks/kernels/bench_attention.py --model gemma3-270m --dtype float32 --kv-dtype fp16 --block-size 32

A case is SEQUENCESxCONTEXT (each decodes one token), or TOKENS+CONTEXT (one sequence prefills so many tokens, which end at that context).
All layers run in turn, each over its own memory, in blocks at random places. Products are of bf16, as served; with --dtype float32, or K
and V of fp16 or fp32, of fp32. The fastest of --repeat rounds counts.

Of a step it says the time, K and V read (GB/s, and percent of what memory gives: K and V that fit in the last-level cache, as of 1x512, are
read from there, and it may be more than 100), operations (Gop/s, and percent of the peak), and the percent of what either limit allows.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np

from octavo import _native
from octavo.bench.machine import MachineRates, engine_cpus, machine_line, measure
from octavo.ops.kv_format import NUMBER_BYTES, KVFormat


@dataclass(frozen=True)
class Layers:
    """Attention layers of like shape."""

    count: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0


MODELS = {
    "smollm2": [Layers(30, 9, 3, 64)],
    "gemma3-270m": [Layers(15, 4, 1, 256, 512), Layers(3, 4, 1, 256)],
    "llama3-8b": [Layers(32, 32, 8, 128)],
}


DEFAULT_CASES = [
    *("1x512", "1x2048", "1x8192", "8x512", "8x2048", "32x512", "32x2048"),
    *("256+256", "512+512", "2048+2048", "512+2560", "512+8704", "2048+10240"),
]


@dataclass(frozen=True)
class Case:
    """``sequences`` of ``context`` tokens, the last ``queries`` of which are attended for."""

    sequences: int
    queries: int
    context: int

    @classmethod
    def parse(cls, text: str) -> Case:
        if "x" in text:
            sequences, context = text.split("x")
            return cls(int(sequences), 1, int(context))
        queries, context = text.split("+")
        return cls(1, int(queries), int(context))

    def attended(self, window: int) -> int:
        """Positions seen by all queries of a sequence together."""
        ends = np.arange(self.context - self.queries, self.context) + 1
        return int(np.minimum(ends, window or ends).sum())

    def held(self, window: int) -> int:
        """Positions of one sequence that are read at all."""
        return min(self.context, window + self.queries - 1) if window else self.context


class AttentionBench:
    """One program a kind of layer; K and V of zeros, which take as long as any numbers."""

    def __init__(self, layers: Layers, case: Case, isa: str, pool: _native.ThreadPool, format: KVFormat, block_size: int) -> None:
        self.layers, self.case = layers, case
        blocks = -(-case.context // block_size)
        self.kv = _native.KVStorage(
            isa, layers.count, case.sequences * blocks, block_size, layers.kv_heads, layers.head_dim, format.dtype, format.scales,
            bf16_products=format.bf16_products,
        )  # fmt: skip
        self.format = format
        table = np.random.default_rng(0).permutation(case.sequences * blocks).astype(np.int32).reshape(case.sequences, blocks)
        first = case.context - case.queries
        positions = np.tile(np.arange(first, case.context, dtype=np.int32), case.sequences)
        self.step = (
            positions * 0, positions, np.arange(case.sequences + 1, dtype=np.int32) * case.queries,
            np.full(case.sequences, case.context, np.int32), [table], [positions * 0], positions[:0],
        )  # fmt: skip
        self._touch(isa, pool, table.size * block_size)
        self.program = _native.Program(isa, pool)
        q = self.program.add_buffer("f32", layers.heads * layers.head_dim, "tokens")
        out = self.program.add_buffer("f32", layers.heads * layers.head_dim, "tokens")
        for layer in range(layers.count):
            ints = [layer, 0, layers.heads, layers.window, 0]
            self.program.add_op("attention", [q], [out], [None], ints, [layers.head_dim**-0.5, 0.0])
        rows = np.random.default_rng(1).standard_normal((len(positions), layers.heads * layers.head_dim))
        self.program.write(q, rows.astype(np.float32))

    def _touch(self, isa: str, pool: _native.ThreadPool, slots: int) -> None:
        """Write every slot once: memory never written is one page of zeros."""
        columns = self.layers.kv_heads * self.layers.head_dim
        writer = _native.Program(isa, pool)
        k, out = (writer.add_buffer("f32", columns, "tokens") for _ in range(2))
        for layer in range(self.layers.count):
            writer.add_op("kv_write", [k, k], [], [], [layer, 0], [])
        writer.add_op("add", [k, k], [out], [], [], [])
        writer.write(k, np.zeros((slots, columns), np.float32))
        index, ends = np.arange(slots, dtype=np.int32), np.array([0, slots], np.int32)
        writer.run(self.kv, index * 0, index, ends, ends[1:], [np.zeros((1, 1), np.int32)], [index], index[:0])

    def seconds(self) -> float:
        """Of one step, all layers."""
        self.program.set_timing(True)
        self.program.run(self.kv, *self.step)
        return sum(seconds for _, seconds, _ in self.program.timings())

    def work(self) -> tuple[float, float]:
        """Operations, and bytes of K and V that must be read."""
        n = self.layers
        operations = 4.0 * n.count * n.heads * n.head_dim * self.case.sequences * self.case.attended(n.window)
        size = 2.0 * n.count * n.kv_heads * self.format.vector_bytes(n.head_dim) * self.case.sequences * self.case.held(n.window)
        return operations, size


def parse_format(text: str) -> KVFormat:
    """ "int8:dynamic" and the like; an 8-bit type alone has dynamic scales. Products are of bf16 where the type allows it."""
    dtype, _, scales = text.partition(":")
    if dtype not in NUMBER_BYTES:
        raise argparse.ArgumentTypeError(f"{dtype}: choose one of {', '.join(NUMBER_BYTES)}")
    scales = scales or ("dynamic" if NUMBER_BYTES[dtype] == 1 else "none")
    return KVFormat(dtype, scales, bf16_products=dtype not in ("fp16", "fp32"))


def report(benches: list[AttentionBench], seconds: float, rates: MachineRates) -> str:
    """One line on a step, whose layers are those of ``benches``."""
    format, work = benches[0].format, [bench.work() for bench in benches]
    operations, size = (sum(part) for part in zip(*work, strict=True))
    peak, bandwidth = rates.of("bf16" if format.bf16_products else "f32"), rates.read_bytes_s
    limit = sum(max(n / peak, read / bandwidth) for n, read in work)
    name = f"{format.dtype} {format.scales}" if format.scales != "none" else format.dtype
    return (
        f"{name:16} {seconds * 1e3:9.3f} ms  {size / seconds / 1e9:6.1f} GB/s {100 * size / bandwidth / seconds:4.0f} %"
        f"  {operations / seconds / 1e9:6.0f} Gop/s {100 * operations / peak / seconds:4.0f} %  limit {100 * limit / seconds:4.0f} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--case", nargs="+", default=DEFAULT_CASES)
    parser.add_argument("--kv-dtype", nargs="+", type=parse_format, default=[parse_format("bf16")], help="TYPE, or 8-bit TYPE:SCALES")
    parser.add_argument("--dtype", choices=["auto", "float32"], default="auto", help="float32: products of fp32")
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--isa", choices=_native.supported_isas(), default=_native.supported_isas()[0])
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    formats = [replace(kv, bf16_products=False) if args.dtype == "float32" else kv for kv in args.kv_dtype]
    cpus = engine_cpus()
    rates, pool = measure(cpus, 0.5), _native.ThreadPool(cpus)
    print(machine_line(args.isa, rates))
    for text in args.case:
        case = Case.parse(text)
        benches = [[AttentionBench(n, case, args.isa, pool, kv, args.block_size) for n in MODELS[args.model]] for kv in formats]
        best = [[float("inf")] * len(row) for row in benches]
        for _ in range(args.repeat):  # types in turn, so that what else the machine does meets them all
            best = [[min(a, bench.seconds()) for a, bench in zip(*pair, strict=True)] for pair in zip(best, benches, strict=True)]
        for row, times in zip(benches, best, strict=True):
            print(f"{text:>10} {report(row, sum(times), rates)}", flush=True)


if __name__ == "__main__":
    main()
