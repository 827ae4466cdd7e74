"""From the bytes that an Observer fetched to an Observation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from octavo.bench.observe.metrics import Dialect, read_values
from octavo.bench.observe.observation import Observation, Sample
from octavo.bench.observe.observer import METRICS, STEPS, Recording, Reply
from octavo.engine.step_log import StepRecord


class _Steps(msgspec.Struct):
    """An answer of /admin/steps."""

    now: float
    last: int
    lost: int = 0
    steps: list[StepRecord] = []


def read(recording: Recording, run_started: float, *, local: bool) -> Observation:
    """``run_started``: seconds since the epoch by the client's clock. ``local``: the server has the same clock."""
    dialect = recording.dialect
    seen = Observation(engine=dialect.engine if dialect else None, version=_version(recording))
    seen.facts = _json(recording.engine)
    if dialect is not None:
        _read_samples(seen, recording.metrics, dialect, run_started)
        _read_steps(seen, recording.steps, run_started, local)
    _note_what_is_missing(seen, recording)
    return seen


def _read_samples(seen: Observation, replies: Sequence[Reply], dialect: Dialect, run_started: float) -> None:
    broken = 0
    for reply in replies:
        values, unreadable = read_values(reply.body.decode("utf-8", "replace"), dialect)
        broken += unreadable
        if values:
            told = {name: value(values) for name, value in dialect.reads.items()}
            seen.samples.append(Sample(time=(reply.sent + reply.received) / 2 - run_started, **told))
        else:
            seen.partial = True
    if broken:
        seen.partial = True
        seen.notes.append(f"{broken} lines of {METRICS} could not be read")


def _read_steps(seen: Observation, replies: Sequence[Reply], run_started: float, local: bool) -> None:
    answers: list[tuple[Reply, _Steps]] = []
    for reply in replies:
        try:
            answers.append((reply, msgspec.json.decode(reply.body, type=_Steps)))
        except msgspec.MsgspecError as error:
            seen.partial = True
            seen.notes.append(f"an answer of {STEPS} could not be read: {error}")
    if answers and not local:
        seen.clock_offset, seen.clock_error = clock_offset([(reply.sent, reply.received, answer.now) for reply, answer in answers])
    seen.steps_until = answers[-1][0].received - run_started if answers else -math.inf
    for _, answer in answers:
        seen.lost_steps += answer.lost
        for step in answer.steps:
            step.time -= run_started + seen.clock_offset
            seen.steps.append(step)
    if seen.lost_steps:
        seen.partial = True
        seen.notes.append(f"{seen.lost_steps} steps were forgotten by the server before they were fetched")


def clock_offset(exchanges: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """How far the server's clock is ahead, and how far off that may be, from (sent, received, server's time in between), in seconds.

    Each exchange says that the offset is between time - received and time - sent; what all agree on is halved (Marzullo and Owicki 1983,
    Maintaining the Time in a Distributed System). Where a clock moved and they do not, the quickest exchange decides.
    """
    low, high = max(time - received for _, received, time in exchanges), min(time - sent for sent, _, time in exchanges)
    if low > high:
        sent, received, time = min(exchanges, key=lambda exchange: exchange[1] - exchange[0])
        low, high = time - received, time - sent
    return (low + high) / 2, (high - low) / 2


def _version(recording: Recording) -> str | None:
    found = _json(recording.version)
    if found is None or recording.dialect is None:
        return None
    return next((str(found[key]) for key in recording.dialect.version_keys if key in found), None)


def _json(reply: Reply | None) -> dict[str, Any] | None:
    if reply is None or reply.status != 200:
        return None
    try:
        return msgspec.json.decode(reply.body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None


def _note_what_is_missing(seen: Observation, recording: Recording) -> None:
    """Of each kind of failure one line."""
    for path, why in recording.refused.items():
        seen.notes.append(f"the server has no {path} ({why}): its side is not seen" if path == METRICS else f"no {path}: {why}")
    for why, times in Counter(recording.missed).items():
        seen.partial = True
        seen.notes.append(f"{why}, {times} times" if times > 1 else why)
    if recording.metrics and recording.dialect is None:
        seen.notes.append(f"{METRICS} is of no engine that is known here: its side is not seen")
