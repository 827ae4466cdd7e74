"""Where each microsecond of an engine's step goes: by kind of op, sampling, scheduling and the rest of Python.

    python benchmarks/kernels/bench_step.py --model smollm2 --streams 1 32 --prefill 512

Steps of an engine in this process: all streams decode a token after a prompt of 32, or one prompt is prefilled. Means over the steps of
a run, in microseconds, of the fastest of --repeat runs.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

from octavo.bench.machine import engine_cpus, machine_line, measure
from octavo.bench.workload.requests import random_requests
from octavo.config import EngineArgs
from octavo.engine.client import InProcessClient
from octavo.request import EngineCoreRequest

PROMPT, STEPS = 32, 16
"""Tokens before decoding; decode steps of a run."""


class BenchEngine:
    """One model's engine in this process, which nobody else steps, and prompts of random tokens for it."""

    def __init__(self, model: str) -> None:
        self.args = EngineArgs(model=model, max_model_len=1024, num_gpu_blocks_override=512, enable_prefix_caching=False)
        self.engine = InProcessClient(self.args)
        self._runs = itertools.count()

    def requests(self, count: int, input_len: int, output_len: int) -> Iterator[EngineCoreRequest]:
        """So many, under ids that no others had."""
        return random_requests(count, input_len, output_len, self.engine.info.vocab_size, 0, f"run-{next(self._runs)}")


class StepBench(BenchEngine):
    """Times its native program op by op."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._executor = self.engine._core.runner._executor._executor

    def decode(self, streams: int) -> dict[str, float]:
        """Mean seconds of a step in which ``streams`` sequences decode, by part; "all" is the whole step."""
        self._add(streams, PROMPT, STEPS + 8)
        while len(self.engine.step().outputs) < streams:
            pass
        parts = self._steps(STEPS)
        self._finish()
        return parts

    def prefill(self, tokens: int) -> dict[str, float]:
        """The same of the step that prefills so many."""
        self._add(1, tokens, 2)
        parts = self._steps(1)
        self._finish()
        return parts

    def _add(self, count: int, input_len: int, output_len: int) -> None:
        for request in self.requests(count, input_len, output_len):
            self.engine.add(request)

    def _finish(self) -> None:
        while self.engine.has_unfinished_requests:
            self.engine.step()

    def _steps(self, count: int) -> dict[str, float]:
        native = self._executor.native_program
        before, program = self.engine.stats(), self._executor.native_seconds
        native.set_timing(True)
        for _ in range(count):
            self.engine.step()
        after, program = self.engine.stats(), self._executor.native_seconds - program
        ops = {kind: seconds for kind, seconds, calls in native.timings() if calls}
        native.set_timing(False)
        whole, in_native = after.step_seconds - before.step_seconds, after.native_seconds - before.native_seconds
        planning = after.schedule_seconds - before.schedule_seconds
        parts = dict(sorted(ops.items(), key=lambda item: -item[1]))
        parts |= {"program, between ops": program - sum(ops.values()), "sampling": in_native - program}
        parts |= {"Python: scheduling": planning, "Python: the rest": whole - in_native - planning, "all": whole}
        return {name: seconds / count for name, seconds in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=["smollm2", "gemma3-270m"], nargs="+")
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 32])
    parser.add_argument("--prefill", type=int, nargs="*", default=[512], help="at most the step's budget")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    rates = measure(engine_cpus(), 0.5)
    for model in args.model:
        bench = StepBench(model)
        print(f"{machine_line(bench.engine.info.isa, rates)}\n{model}: µs of a step")
        runs = {f"{n} streams": [bench.decode(n) for _ in range(args.repeat)] for n in args.streams}
        runs |= {f"prefill of {n}": [bench.prefill(n) for _ in range(args.repeat)] for n in args.prefill}
        best = {name: min(found, key=lambda parts: parts["all"]) for name, found in runs.items()}
        names = dict.fromkeys(part for parts in best.values() for part in parts if part != "all")
        print(f"{'':24}" + "".join(f"{name:>22}" for name in best))
        for part in [*names, "all"]:
            cells = (f"{1e6 * p.get(part, 0):10,.1f} ({100 * p.get(part, 0) / p['all']:4.1f} %)" for p in best.values())
            print(f"{part:24}" + "".join(f"{cell:>22}" for cell in cells))
        bench.engine.shutdown()
        print()


if __name__ == "__main__":
    main()
