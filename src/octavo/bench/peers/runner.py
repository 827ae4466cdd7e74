"""Runs the parts of a comparison: each engine started, measured by one client, stopped; what fails is noted, and the others go on."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from octavo import envs
from octavo.bench.load.probe import Ready, get_ready
from octavo.bench.load.records import LoadRun
from octavo.bench.load.run import LoadOptions, offer
from octavo.bench.load.target import Target
from octavo.bench.machine import MachineRates
from octavo.bench.observe.observer import Observer
from octavo.bench.peers.description import ServerDescription
from octavo.bench.peers.measuring import load_result
from octavo.bench.peers.plan import Comparison, Load, Part
from octavo.bench.peers.process import ServerError, ServerProcess
from octavo.bench.peers.result import PartResult, PartStore
from octavo.bench.peers.sweeping import sweep_engine
from octavo.bench.report.energy import EnergyMeter
from octavo.bench.report.quiet import Quiet
from octavo.bench.workload.requests import DrawnRequest
from octavo.bench.workload.tokens import Tokens
from octavo.errors import OctavoError

logger = logging.getLogger(__name__)

VERSION_SECONDS = 60.0
PATIENCE, PATIENCE_SECONDS = 10, 120.0
"""A load that takes so many times what the file expects, and so long, is stopped: nobody may be there to do it."""
WARM_UP = Load(
    name="warm-up", input_len=64, output_len=16, num_prompts=4, concurrency=4, rate=0.0, shows=(), expected_seconds=2.0
)  # fmt: skip
WARM_UP_SEED = 2**32
"""Of no load."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """The load client, the same for every engine."""

    tokens: Tokens
    """Of the model."""

    def get_ready(self, server: ServerDescription) -> Ready:
        """A target that asks the server for no more than it takes. Raises OctavoError if it does not answer as it should."""
        sample = self.draw(server, WARM_UP, WARM_UP_SEED)[0]
        settings = {"endpoint": server.endpoint, "tokenizer": self.tokens.tokenizer}
        return get_ready(server.url, server.served_model, sample, **settings)

    def draw(self, server: ServerDescription, load: Load, seed: int) -> list[DrawnRequest]:
        """The load's requests, as the server can read them."""
        return load.workload(seed).draw(self.tokens, as_text=as_text(server))


def as_text(server: ServerDescription) -> bool:
    """Whether it is prompted with text, not with ids."""
    return server.prompts == "text" or "chat" in server.endpoint


class Runner:
    """Runs parts in order. A part that is on disk already is taken from there; every other is saved, with all that it came to."""

    def __init__(self, comparison: Comparison, client: Client, store: PartStore, rates: MachineRates, tell: Callable[[str], None]) -> None:
        """``rates``: of this machine. ``tell`` is given a line when something has happened."""
        self._comparison = comparison
        self._client = client
        self._store = store
        self._rates = rates
        self._tell = tell
        self._versions: dict[tuple[str, ...], str] = {}
        self._unstartable: dict[str, str] = {}

    def run(self, resume: bool) -> list[PartResult]:
        """All parts, in order. Without ``resume`` what was saved before is forgotten.

        If somebody stops it with SIGINT: those until then, the last of them with what it came to, and of the others what was saved before.
        """
        if not resume:
            self._store.clear()
        results: list[PartResult] = []
        parts = self._comparison.parts()
        for number, part in enumerate(parts, 1):
            results.append(self._one(part))
            if results[-1].interrupted:
                self._tell(f"stopped in {part.name}; what there is of it is kept, and --resume does it again and goes on")
                rest = [self._store.find(part.name, self._comparison.digest(part), finished=False) for part in parts[number:]]
                return results + [saved for saved in rest if saved is not None]
        return results

    def _one(self, part: Part) -> PartResult:
        digest = self._comparison.digest(part)
        if (saved := self._store.find(part.name, digest)) is not None:
            self._tell(f"{part.name}: taken from {self._store.folder}")
            return saved
        result = PartResult(kind=part.kind, engine=part.entrant.label, round=part.round, digest=digest, started=time.time())
        result.rates = self._rates
        if (why := self._unstartable.get(part.server.name + part.server.variant)) is not None:
            result.failure = why
            self._tell(f"{part.name}: left out, because it did not start before")
            return result
        self._tell(f"{part.name}: starting")
        try:
            self._measure(part, result)
        except KeyboardInterrupt:
            result.interrupted, result.failure = True, "stopped by SIGINT"
        result.seconds = time.time() - result.started
        self._store.save(part.name, result)
        self._tell(f"{part.name}: {result.failure or 'done'} ({result.seconds:.0f} s)")
        return result

    def _measure(self, part: Part, result: PartResult) -> None:
        """Fill in ``result``, whatever happens to the server.

        Raises:
            KeyboardInterrupt: somebody stopped the comparison.
        """
        server = part.server
        result.version = self._version(server)
        log = self._store.folder / f"{part.name}.log"
        patience = max(300.0, 6 * server.startup_seconds)
        process = ServerProcess(server.command, server.ready_url, server.env, log, name="its server", ready_timeout=patience)
        try:
            process.start()
        except ServerError as error:
            self._unstartable[server.name + server.variant] = result.failure = str(error)
            return
        quiet = Quiet()
        try:
            result.startup_s = process.startup_seconds
            with quiet:
                self._measure_ready(part, process, result)
        except OctavoError as error:
            result.failure = str(error)
        except Exception as error:  # what nobody foresaw costs one part, not the parts after it
            logger.exception("%s", part.name)
            result.failure = f"{type(error).__name__}: {error}"
        finally:
            result.unquiet = quiet.during.words(f"in {part.name}") if quiet.during else None
            result.failure = process.failure() or result.failure
            process.stop()
            if (memory := process.memory) is not None:
                result.peak_memory, result.peak_memory_upper = memory.peak, memory.upper

    def _measure_ready(self, part: Part, process: ServerProcess, result: PartResult) -> None:
        ready = self._client.get_ready(part.server)
        result.notes = ready.notes
        if _by_hand(self._offer(ready.target, part.server, WARM_UP, WARM_UP_SEED).interrupted):
            raise KeyboardInterrupt
        if part.kind == "round":
            self._loads(part, ready.target, process, result)
        else:
            self._sweep(part, ready, process, result)

    def _loads(self, part: Part, target: Target, process: ServerProcess, result: PartResult) -> None:
        """Each load of a round, until the server dies or somebody stops it."""
        slos = self._comparison.sweep.slos if self._comparison.sweep else ()
        for load in self._comparison.loads:
            observer = Observer(target.url)
            observer.start()
            with EnergyMeter() as meter:
                run = self._offer(target, part.server, load, self._comparison.seed_of(part))
            seen = observer.stop(run.started)
            result.loads[load.name] = load_result(run, seen, meter.energy, slos, self._rates)
            process.settle()
            if run.interrupted is not None:
                result.failure = f"{load.name}: {run.interrupted}"
                result.interrupted = _by_hand(run.interrupted)
            if result.failure is not None or process.failure() is not None:
                return

    def _sweep(self, part: Part, ready: Ready, process: ServerProcess, result: PartResult) -> None:
        """The search for the highest rate. One that ended early is a failure."""
        plan = self._comparison.sweep_of(part)
        assert plan is not None
        seed, text_prompts = self._comparison.seed_of(part), as_text(part.server)
        swept = sweep_engine(plan, seed, ready, self._client.tokens, text_prompts, self._rates, self._tell)
        result.sweep, result.at_answer = swept
        result.kv_efficiency = swept.at_answer.kv_efficiency if swept.at_answer is not None else None
        process.settle()
        if (why := swept.result["interrupted"]) is not None:
            result.failure = f"the sweep ended early: {why}"
            result.interrupted = _by_hand(why)

    def _offer(self, target: Target, server: ServerDescription, load: Load, seed: int) -> LoadRun:
        """A server's death ends the run, and is seen by whoever looks at the process."""
        limit = max(PATIENCE_SECONDS, PATIENCE * load.expected_seconds)
        options = LoadOptions(stop_when=lambda _, seconds: f"it took longer than {limit:g} s" if seconds > limit else None)
        return offer(target, self._client.draw(server, load, seed), concurrency=load.concurrency, options=options)

    def _version(self, server: ServerDescription) -> str:
        if server.version_command not in self._versions:
            self._versions[server.version_command] = read_version(server)
        return self._versions[server.version_command]


def _by_hand(interrupted: str | None) -> bool:
    """Whether a run, or a sweep between two runs, was stopped by whoever runs the comparison."""
    return interrupted is not None and ("SIGINT" in interrupted or "Ctrl-C" in interrupted)


def read_version(server: ServerDescription) -> str:
    """The first line that the version command prints; "" if there is no such command or it fails."""
    if not server.version_command:
        return ""
    try:
        done = subprocess.run(
            list(server.version_command),
            env=envs.for_child(**server.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=VERSION_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = [line.strip() for line in done.stdout.decode(errors="replace").splitlines()]
    return next((line.removeprefix("version: ") for line in lines if line), "")
