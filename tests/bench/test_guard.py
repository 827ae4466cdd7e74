"""The guard against regress: what it makes of times. Clocks here are lists of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.guard import callgrind
from benchmarks.guard.__main__ import tell, update
from benchmarks.guard.cases import Case, Reference, better
from benchmarks.guard.judge import Figure, judge, load, middle, save, table, take, verdicts
from octavo.bench.machine import MachineRates


def machine(speed: float = 1.0) -> Reference:
    """One that does ``speed`` of everything a second."""
    return Reference(MachineRates(speed, speed, speed, speed, (0,)), 1 / speed)


def case(name: str, seconds: Callable[[], float]) -> Case:
    """A kernel that reads one byte."""
    return Case(name, seconds, lambda reference: 1 / reference.rates.read_bytes_s)


def steady(seconds: float) -> Callable[[], float]:
    return lambda: seconds


def in_turn(numbers: Sequence[float]) -> Callable[[], float]:
    left = iter(numbers)
    return lambda: next(left)


COMMITTED = {"kernel": Figure(2.0, 0.5), "other": Figure(4.0, 0.25)}


@pytest.mark.parametrize(("factor", "named"), [(1.0, []), (1.15, []), (1.3, ["kernel"]), (0.5, [])])
def test_a_kernel_that_takes_1_3_times_as_long_is_named_and_no_other(factor: float, named: list[str]) -> None:
    cases = [case("kernel", steady(2.0 * factor)), case("other", steady(4.0))]
    found = judge(cases, COMMITTED, machine, rounds=3, tolerance=0.2)
    assert [v.name for v in found if v.regressed(0.2)] == named
    assert found[0].slowdown == pytest.approx(factor)
    assert ("SLOWER" in table(found, 0.2)) == bool(named)


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.25, 3.0])
def test_a_machine_that_is_faster_or_slower_as_a_whole_is_no_regress(speed: float) -> None:
    found = judge([case("kernel", steady(2.0 / speed))], COMMITTED, lambda: machine(speed), rounds=2)
    assert found[0].slowdown <= 1.0 + 1e-9


def test_loops_alone_that_run_faster_are_no_regress() -> None:
    """The kernel takes as long as ever, while its limit has moved away from it."""
    found = judge([case("kernel", steady(2.0))], COMMITTED, lambda: machine(3.0), rounds=2)
    assert found[0].slowdown == pytest.approx(1.0)
    assert found[0].now.share == pytest.approx(0.5 / 3)


def test_the_best_of_the_rounds_counts_of_kernels_and_of_loops() -> None:
    speeds = in_turn([0.5, 1.0, 0.7])
    figures = take([case("kernel", in_turn([2.5, 2.0]))], lambda: machine(speeds()), rounds=2)
    assert figures == {"kernel": Figure(2.0, 0.5)}


def test_loops_and_cases_are_run_in_turn() -> None:
    order: list[str] = []

    def note(name: str) -> Callable[[], float]:
        return lambda: order.append(name) or 1.0

    def loops() -> Reference:
        order.append("loops")
        return machine()

    take([case("a", note("a")), case("b", note("b"))], loops, rounds=2)
    assert order == ["loops", "a", "b", "loops", "a", "b", "loops"]


def test_what_looks_slower_is_measured_again_before_it_is_named() -> None:
    found = judge([case("kernel", in_turn([3.0, *[3.0] * 3, 2.5, 2.1, 2.5]))], COMMITTED, machine, rounds=1, tolerance=0.2)
    assert not found[0].regressed(0.2)
    with pytest.raises(StopIteration):  # and what does not is not
        judge([case("kernel", in_turn([3.0, *[3.0] * 3]))], COMMITTED, machine, rounds=1, tolerance=0.2)
    judge([case("kernel", in_turn([2.1]))], COMMITTED, machine, rounds=1, tolerance=0.2)


def test_a_case_without_a_committed_result_is_shown_and_not_judged() -> None:
    (found,) = verdicts({"new": Figure(1.0, 0.9)}, COMMITTED)
    assert found.then is None and not found.regressed(0.0)
    assert "–" in table([found], 0.2)


def test_results_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert load(path) == {}
    save(path, "a machine", COMMITTED)
    assert load(path) == COMMITTED


def test_an_update_replaces_its_own_cases_alone(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    save(path, "a machine", COMMITTED)
    assert update(path, "a machine", {"kernel": Figure(1.0, 0.9)}, []) == 0
    assert load(path) == COMMITTED | {"kernel": Figure(1.0, 0.9)}


def test_a_machine_that_was_not_quiet_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    save(path, "a machine", COMMITTED)
    assert update(path, "a machine", {"kernel": Figure(9.0, 0.1)}, ["The machine was not quiet during the run."]) == 2
    assert load(path) == COMMITTED
    assert "The machine was not quiet during the run. So nothing is written" in capsys.readouterr().out


@pytest.mark.parametrize(("seconds", "warnings", "status"), [(2.0, [], 0), (2.0, ["busy"], 0), (3.0, [], 1), (3.0, ["busy"], 2)])
def test_only_a_quiet_machine_gives_a_verdict(seconds: float, warnings: list[str], status: int) -> None:
    assert tell(verdicts({"kernel": Figure(seconds, 1 / seconds)}, COMMITTED), 0.2, warnings) == status


def test_the_middle_of_three_measurements_is_of_each_case_by_itself() -> None:
    runs = [{"kernel": Figure(t, s)} for t, s in ((1.0, 0.2), (3.0, 0.9), (2.0, 0.4))]
    assert middle(runs) == {"kernel": Figure(2.0, 0.4)}


def test_the_better_of_two_references_takes_each_rate_by_itself() -> None:
    a = Reference(MachineRates(1.0, 5.0, 3.0, 4.0, (0,)), 2.0)
    b = Reference(MachineRates(2.0, 4.0, 3.5, 1.0, (0,)), 3.0)
    assert better(a, b) == Reference(MachineRates(2.0, 5.0, 3.5, 4.0, (0,)), 2.0)


@pytest.mark.parametrize("line", ["totals: 39619", "summary: 39619", "summary: 39619 1 2\ntotals: 39619 1 2"])
def test_a_file_of_callgrind_gives_its_instructions(line: str) -> None:
    assert callgrind.total(f"version: 1\nevents: Ir\n{line}\n") == 39619


def test_a_file_of_callgrind_without_totals_is_refused() -> None:
    with pytest.raises(ValueError, match="no totals"):
        callgrind.total("version: 1\n")


def test_one_instruction_in_a_hundred_more_is_tolerated_and_two_are_not() -> None:
    assert callgrind.slower({"a": 101, "b": 102, "new": 500}, {"a": 100, "b": 100}) == ["b"]


@pytest.mark.slow
def test_every_kernel_and_python_case_can_be_built_and_run() -> None:
    """That they run at all: no time is judged here."""
    from benchmarks.guard.kernels import kernel_cases
    from benchmarks.guard.python_costs import python_cases
    from octavo import _native

    cases = [*kernel_cases(_native.supported_isas()[0], _native.ThreadPool([-1])), *python_cases()]
    assert len({case.name for case in cases}) == len(cases) > 60
    for found in cases:
        assert found.run() > 0 and found.least(machine(1e9)) > 0, found.name
