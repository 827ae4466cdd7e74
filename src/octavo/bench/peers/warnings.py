"""What a reader of a comparison must know before its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.bench.peers.result import CompareResult, EngineResult
from octavo.bench.peers.summary import parts_of

AT_ANSWER = "the highest rate at the SLO"
GUESSED = ("text", "chunks")
"""Ways of counting tokens that are no count of the server's (octavo.bench.load.credit)."""


def warnings_of(result: CompareResult) -> list[str]:
    """The gravest first."""
    said = ["Partial: the comparison was stopped before all its parts were done."] if result.partial else []
    said += [f"{engine.label}: {failure}" for engine in result.engines for failure in engine.failures]
    said += [f"{engine.label}: its description was never tried." for engine in result.engines if not engine.tested]
    if unquiet := [part.unquiet for part in result.parts if part.unquiet]:
        said.append(f"In {len(unquiet)} of {len(result.parts)} parts the machine was not quiet. One of them: {unquiet[0]}")
    said += [sentence for engine in result.engines for sentence in _of_loads(result, engine)]
    said += [f"{engine.label}, sweep: {sentence}" for engine in result.engines for sentence in _of_sweep(result, engine)]
    return said


def _of_sweep(result: CompareResult, engine: EngineResult) -> list[str]:
    """Its own."""
    swept = parts_of(result.parts, engine.label, "sweep")
    return list(dict.fromkeys(sentence for part in swept if part.sweep is not None for sentence in part.sweep["warnings"]))


@dataclass(frozen=True)
class _Trouble:
    """A reason to doubt a load's figures."""

    count: Callable[[Mapping[str, Any]], int]
    """In one result of octavo.bench.measures; 0: there is none."""
    words: str
    """{n}: the counts of all rounds together, {of}: its requests, {why}: what the last of them said of it."""
    why: Callable[[Mapping[str, Any]], str] = lambda _: ""


_TROUBLES = (
    _Trouble(
        lambda found: not found["valid"],
        "not counted, because the client was the bottleneck ({why})",
        lambda found: str(found["client"]["bottleneck"]),
    ),
    _Trouble(lambda found: found["partial"], "not counted, because it was stopped early ({why})", lambda found: str(found["interrupted"])),
    _Trouble(lambda found: found["failed"], "{n} of {of} requests did not complete"),
    _Trouble(lambda found: found["wrong_length"], "{n} of {of} requests had a prompt or an answer of another length than planned"),
    _Trouble(lambda found: found["cached_prompt_tokens"] or 0, "{n} prompt tokens came from the server's prefix cache"),
    _Trouble(
        lambda found: sum(found.get("counted", {}).get(way, 0) for way in GUESSED),
        "of {n} answers the server did not say which tokens came when: the gaps between them are by the text",
    ),
)


def _of_loads(result: CompareResult, engine: EngineResult) -> Iterator[str]:
    """A sentence for each trouble of each load, whatever the rounds."""
    for load, rounds in _results(result, engine.label).items():
        for trouble in _TROUBLES:
            there = {number: found for number, found in rounds if trouble.count(found)}
            if there:
                last = list(there.values())[-1]
                counted, requests = sum(map(trouble.count, there.values())), sum(found["requests"] for found in there.values())
                where = f", round {', '.join(map(str, there))}" if load != AT_ANSWER else ""
                yield f"{engine.label}, {load}{where}: {trouble.words.format(n=counted, of=requests, why=trouble.why(last))}."


def _results(result: CompareResult, engine: str) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """By load, (round, result) of each round; and of the last run at the highest rate."""
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for part in parts_of(result.parts, engine, "round"):
        for load, each in part.loads.items():
            found.setdefault(load, []).append((part.round, each.result))
    at_answer = [(0, part.at_answer.result) for part in parts_of(result.parts, engine, "sweep") if part.at_answer is not None]
    return found | ({AT_ANSWER: at_answer} if at_answer else {})
