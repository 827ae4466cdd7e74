"""The native kernels as cases: products, attention, the ops that pass over rows, sampling."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.guard.cases import Case, Reference
from benchmarks.kernels import bench_attention, bench_linear, bench_rowwise
from octavo import _native
from octavo.ops.kv_format import KVFormat

LINEAR_ROWS = (1, 8, 32, 512)
ATTENTION = ("1x512", "1x8192", "32x256", "512+512", "512+2048")
ROWWISE = {
    "rms_norm → q8": (1, 32, 512),
    "rope_kv_write": (1, 32, 512),
    "gated_act → q8": (1, 32, 512),
    "sample, greedy": (1, 32),
    "sample, top-p 0.95": (1, 32),
    "sample, top-k 40": (1, 32),
    "logprobs, 5": (1, 32),
}
SHORT_SECONDS = 2e-3
"""A run is repeated until it took this long in all, and the fastest counts: a microsecond needs more tries than a millisecond."""


def kernel_cases(isa: str, pool: _native.ThreadPool) -> list[Case]:
    return [*_linear(isa, pool), *_attention(isa, pool), *_rowwise(isa, pool)]


def _best(run: Callable[[], float]) -> Callable[[], float]:
    def repeated() -> float:
        best, spent = float("inf"), 0.0
        while spent < SHORT_SECONDS:
            seconds = run()
            best, spent = min(best, seconds), spent + max(seconds, 2e-6)
        return best

    return repeated


def _linear(isa: str, pool: _native.ThreadPool) -> list[Case]:
    cases = []
    for model, matrices in bench_linear.MODELS.items():
        for matrix in matrices:
            for rows in LINEAR_ROWS:
                if matrix.count > 1 or rows <= bench_linear.HEAD_ROWS:
                    name = f"linear {model} {matrix.name} {matrix.format}, {rows} row{'s' if rows > 1 else ''}"
                    cases.append(_linear_case(name, bench_linear.Products.of_one(isa, pool, matrix, rows), rows))
    return cases


def _linear_case(name: str, products: bench_linear.Products, rows: int) -> Case:
    products.fill(rows)

    def least(reference: Reference) -> float:
        return max(products.least(reference.rates, rows))

    return Case(name, _best(lambda: products.run(rows)), least)


def _attention(isa: str, pool: _native.ThreadPool) -> list[Case]:
    cases = []
    for text in ATTENTION:
        case, kv = bench_attention.Case.parse(text), KVFormat("bf16")
        benches = [bench_attention.AttentionBench(n, case, isa, pool, kv, 16) for n in bench_attention.MODELS["smollm2"]]
        cases.append(_attention_case(f"attention smollm2 {text}", benches))
    return cases


def _attention_case(name: str, benches: list[bench_attention.AttentionBench]) -> Case:
    def least(reference: Reference) -> float:
        work = [bench.work() for bench in benches]
        return sum(max(n / reference.rates.bf16_flops_s, size / reference.rates.read_bytes_s) for n, size in work)

    return Case(name, _best(lambda: sum(bench.seconds() for bench in benches)), least)


def _rowwise(isa: str, pool: _native.ThreadPool) -> list[Case]:
    cases, ops = [], bench_rowwise.ops(bench_rowwise.MODELS["smollm2"])
    for name, all_rows in ROWWISE.items():
        build, row_bytes = ops[name]
        for rows in all_rows:
            built = partial(build, isa, pool, rows)
            cases.append(_rowwise_case(f"{name}, {rows} row{'s' if rows > 1 else ''}", built, rows * row_bytes))
    return cases


def _rowwise_case(name: str, build: Callable[[], Callable[[], float]], nbytes: float) -> Case:
    """Built anew in each round: in which pages of memory a few megabytes lie is worth a factor of two, and stays so for a process."""
    return Case(name, lambda: _best(build())(), lambda reference: nbytes / reference.rates.read_bytes_s)
