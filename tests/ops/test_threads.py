"""The chooser of CPUs, on made-up machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from octavo.errors import InvalidRequestError
from octavo.ops.threads import cgroup_cpus, choose_cpus


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def machine(root: Path, cores: Sequence[str], cpu_max: str | None = None, group: str = "/") -> Path:
    """A file tree with these cores ("0,4" are two siblings) and this cgroup v2 quota."""
    for siblings in cores:
        for cpu in siblings.split(","):
            put(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings)
    put(root / "proc/self/cgroup", f"0::{group}")
    if cpu_max is not None:
        put(root / "sys/fs/cgroup" / group.lstrip("/") / "cpu.max", cpu_max)
    return root


EIGHT = [str(cpu) for cpu in range(8)]


@pytest.mark.parametrize(
    ("cpu_max", "affinity", "count"),
    [
        ("200000 100000", range(8), 2),
        ("max 100000", range(8), 8),
        ("765000 100000", range(8), 7),
        ("max 100000", range(4), 4),
        ("300000 100000", range(2), 2),
        ("50000 100000", range(8), 1),
    ],
)
def test_cpu_01_quota_and_affinity_both_count(tmp_path: Path, cpu_max: str, affinity: range, count: int) -> None:
    assert choose_cpus(affinity=affinity, root=machine(tmp_path, EIGHT, cpu_max)) == list(range(count))


def test_cpu_01_an_ancestors_quota_counts(tmp_path: Path) -> None:
    root = machine(tmp_path, EIGHT, "max 100000", group="/slice/service")
    put(root / "sys/fs/cgroup/slice/cpu.max", "300000 100000")
    assert choose_cpus(affinity=range(8), root=root) == [0, 1, 2]


def test_cpu_01_version_1_quota_also_where_the_path_is_the_hosts(tmp_path: Path) -> None:
    root = machine(tmp_path, EIGHT)
    put(root / "proc/self/cgroup", "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc")
    put(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000")
    put(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000")
    assert choose_cpus(affinity=range(8), root=root) == [0, 1]
    put(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1")
    assert len(choose_cpus(affinity=range(8), root=root)) == 8


def test_without_cgroups_or_topology_each_cpu_is_a_core(tmp_path: Path) -> None:
    assert choose_cpus(affinity=[3, 1], root=tmp_path) == [1, 3]
    assert cgroup_cpus(tmp_path) == float("inf")


def test_cpu_02_smt_siblings_are_one_core(tmp_path: Path) -> None:
    root = machine(tmp_path, ["0,4", "1,5", "2,6", "3,7"])
    assert choose_cpus(affinity=range(8), root=root) == [0, 1, 2, 3]
    assert choose_cpus(affinity=[4, 5, 1, 6], root=root) == [1, 4, 6]


def test_cpu_04_instances_in_separate_masks_do_not_meet(tmp_path: Path) -> None:
    root = machine(tmp_path, EIGHT)
    first, second = choose_cpus(affinity=range(4), root=root), choose_cpus(affinity=range(4, 8), root=root)
    assert (first, second) == ([0, 1, 2, 3], [4, 5, 6, 7])


def test_an_override_takes_siblings_last_and_stays_inside_the_mask(tmp_path: Path) -> None:
    root = machine(tmp_path, ["0,4", "1,5", "2,6", "3,7"], "100000 100000")
    assert choose_cpus(3, affinity=[0, 1, 4, 5], root=root) == [0, 1, 4]
    assert choose_cpus(1, affinity=[0, 1, 4, 5], root=root) == [0]
    for wrong in (0, -1, 5):
        with pytest.raises(InvalidRequestError, match=f"num_threads = {wrong}: this process may use 1 to 4 CPUs"):
            choose_cpus(wrong, affinity=[0, 1, 4, 5], root=root)


def test_this_machine_has_some() -> None:
    assert choose_cpus()
