"""A comparison of two engines, A and B, and parts of it with figures that are easy to reckon with."""

from __future__ import annotations

from octavo.bench.measures.slo import parse_slos
from octavo.bench.peers.description import ServerDescription
from octavo.bench.peers.plan import Comparison, Entrant, Load, SweepPlan
from octavo.bench.peers.result import LoadResult, PartResult


def server(name: str) -> ServerDescription:
    return ServerDescription(
        name=name,
        variant="",
        tested=name != "B",
        command=(name,),
        env={},
        shown_command=(name,),
        shown_env={},
        url="http://127.0.0.1:1",
        ready_url="http://127.0.0.1:1/",
        version_command=(),
        release="",
        served_model="m",
        endpoint="/v1/completions",
        prompts="tokens",
        weights="w",
        notes="n",
        startup_seconds=1,
    )


LOAD = Load(
    name="load",
    input_len=100,
    output_len=10,
    num_prompts=4,
    concurrency=1,
    rate=0,
    shows=("ttft_ms", "itl_ms", "output_tok_s", "decode_tok_s", "prefill_tok_s", "kv_efficiency"),
    expected_seconds=1,
)
SWEEP = SweepPlan(slos=parse_slos("itl:p99<50ms"), input_len=1, output_len=1, options={}, expected_seconds=1)


def comparison(rounds: int = 3) -> Comparison:
    entrants = tuple(Entrant(label=name, server=server(name), sweep_server=server(name)) for name in "AB")
    return Comparison(
        name="c", description="", model="m", tokenizer="t", seed=0, rounds=rounds, entrants=entrants, loads=(LOAD,), sweep=SWEEP
    )


def served(ttft: float, itl: float, tok_s: float, **fields) -> dict:
    def statistics(p50: float) -> dict:
        return {"p50": p50, "p99": 2 * p50, "max": 3 * p50}

    latencies = {"ttft_ms": statistics(ttft), "itl_ms": statistics(itl), "tpot_ms": statistics(itl), "e2e_ms": statistics(9 * itl)}
    counts = {"requests": 4, "completed": 4, "failed": 0, "wrong_length": 0, "cached_prompt_tokens": None, "output_tok_s": tok_s}
    sound = {"valid": True, "partial": False, "interrupted": None, "client": {"bottleneck": None}, "counted": {"usage": 4}}
    return counts | {"total_tok_s": 3 * tok_s} | sound | latencies | fields


def part(engine: str, number: int, ttft: float, itl: float, tok_s: float, **fields) -> PartResult:
    loads = {"load": LoadResult(result=served(ttft, itl, tok_s), kv_efficiency=fields.pop("kv_efficiency", None))}
    return PartResult(kind="round", engine=engine, round=number, digest="", started=0.0, loads=loads, **fields)


def swept(engine: str, rates: dict[float, bool], shown: tuple[float | None, float | None] = (None, None), **fields) -> PartResult:
    measures = {"ttft_ms": {"p99": 7.0}, "itl_ms": {"p99": 8.0}, "goodput_rps": 1.0}
    verdicts = [{"rate": rate, "sustained": kept, "requests": 40, "reason": "late", "measures": measures} for rate, kept in rates.items()]
    best = max((rate for rate, kept in rates.items() if kept), default=None)
    lost = min((rate for rate, kept in rates.items() if not kept), default=None)
    found = {
        "max_rate": best,
        "partial": False,
        "valid": True,
        "warnings": [],
        "bracket": [best, lost],
        "verdicts": verdicts,
        "rule": ["A rule."],
        "confidence": 0.95,
        "shown_sustained": shown[0],
        "shown_not_sustained": shown[1],
        "interrupted": None,
    } | fields
    return PartResult(kind="sweep", engine=engine, round=0, digest="", started=0.0, sweep=found, kv_efficiency=0.9 if best else None)
