"""What is kept of one load on one engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from octavo.bench.load.records import LoadRun
from octavo.bench.machine import MachineRates
from octavo.bench.measures.measures import measure
from octavo.bench.measures.slo import Slo
from octavo.bench.observe.observation import Observation
from octavo.bench.observe.roofline import model_costs, roofline, work_of
from octavo.bench.observe.timeline import server_line, time_average
from octavo.bench.peers.result import LoadResult
from octavo.bench.report.energy import Energy


def load_result(run: LoadRun, seen: Observation, energy: Energy | None, slos: Sequence[Slo], rates: MachineRates) -> LoadResult:
    """From what client and server saw."""
    result = measure(run, slos)
    result["counted"] = dict(Counter(record.counted for record in run.records if record.completed))
    told = model_costs(seen.facts)
    own = roofline(run, seen, rates)
    return LoadResult(
        result=result,
        kv_efficiency=time_average(server_line(seen, run.seconds, "kv_efficiency"), run.seconds),
        energy=None if energy is None else energy.as_data(result["output_tokens"]),
        work=work_of(run),
        costs=None if told is None else told[0],
        steps_roofline=own.as_dict() if own is not None and own.basis == "steps" else None,
    )
