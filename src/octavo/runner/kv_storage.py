"""How much memory KV takes, and how much there is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from octavo.ops.kv_format import KVFormat
from octavo.ops.spec import KVLayer
from octavo.runner.interface import LayerGroup


def layer_groups(layers: Sequence[KVLayer], block_size: int, format: KVFormat) -> list[LayerGroup]:
    """What the engine needs to know of each group of layers, in order of group."""
    groups: list[LayerGroup] = []
    for index in range(1 + max(layer.group for layer in layers)):
        members = [layer for layer in layers if layer.group == index]
        token_bytes = sum(2 * layer.num_kv_heads * format.vector_bytes(layer.head_dim) for layer in members)
        window = members[0].window
        name = f"window{window}" if window else "full"
        groups.append(LayerGroup(name, len(members), block_size * token_bytes, window))
    return groups


def available_memory() -> int:
    """Bytes this process could still take: the machine's, or what is left of the cgroup's limit, whichever is less."""
    return min(_machine_available(), _cgroup_available())


def _machine_available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo states no MemAvailable")


def _cgroup_available() -> int:
    """Of cgroup v2, as seen from inside its own namespace; no limit is a large number."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return 1 << 62
    return 1 << 62 if limit == "max" else max(0, int(limit) - used)
