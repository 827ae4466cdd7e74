"""How long ``octavo serve`` takes from its process's start to the first 200 of /health, and where that goes.

usage: python benchmarks/server/bench_start.py [MODEL] [--rounds 7] [--port P] [--ceiling 1.2] [-- SERVE FLAGS]

The model must be cached. The first start does not count: it warms the system's file cache. Prints each start, and the median of each
phase as the server itself tells them (/metrics, startup_phase_seconds). Exits with 1 if the median start is above ``--ceiling`` seconds.
"""

from __future__ import annotations

import argparse
import re
import socket
import statistics
import subprocess
import sys
import time

POLL_SECONDS = 0.002
PATIENCE_SECONDS = 120.0
PHASE = re.compile(rb'octavo_startup_phase_seconds\{[^}]*phase="([^"]+)"[^}]*\} ([0-9.e+-]+)')


def get(port: int, path: str) -> bytes:
    """The answer, whole; b"" while nobody listens."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b""))
    except OSError:
        return b""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start_once(model: str, port: int, flags: list[str]) -> tuple[float, dict[str, float]]:
    """Seconds to the first 200, and the server's own account of them."""
    start = time.monotonic()
    command = [sys.executable, "-m", "octavo", "serve", model, "--port", str(port), *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while b" 200 " not in get(port, "/health")[:16]:
            if process.poll() is not None or time.monotonic() - start > PATIENCE_SECONDS:
                raise SystemExit(f"{' '.join(command)} did not get ready")
            time.sleep(POLL_SECONDS)
        seconds = time.monotonic() - start
        return seconds, {name.decode(): float(value) for name, value in PHASE.findall(get(port, "/metrics"))}
    finally:
        process.terminate()
        process.wait()


def parse(command: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """This script's own arguments, and what stands behind the first "--": argparse alone would take the latter for MODEL."""
    end = command.index("--") if "--" in command else len(command)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--port", type=int, default=0, help="by default any that is free")
    parser.add_argument("--ceiling", type=float, default=1.2, help="seconds")
    return parser.parse_args(command[:end]), command[end + 1 :]


def main() -> int:
    arguments, flags = parse(sys.argv[1:])
    port = arguments.port or free_port()
    start_once(arguments.model, port, flags)
    starts, phases = zip(*(start_once(arguments.model, port, flags) for _ in range(arguments.rounds)), strict=True)
    print("starts:", ", ".join(f"{seconds:.3f}" for seconds in starts), "s")
    for name in phases[0]:
        print(f"{1e3 * statistics.median(each.get(name, 0.0) for each in phases):8.1f} ms  {name}")
    middle = statistics.median(starts)
    print(f"{1e3 * middle:8.1f} ms  from the start to /health 200, median of {len(starts)}")
    return 0 if middle <= arguments.ceiling else 1


if __name__ == "__main__":
    sys.exit(main())
