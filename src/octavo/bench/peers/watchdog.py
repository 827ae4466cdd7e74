"""Ends a server when its benchmark is gone, however that ended: killed, crashed, out of memory.

Run as a script of its own, ``watchdog.py GRACE``. Its standard input is a pipe whose other end the benchmark alone holds, and writes the
server's process group to. When the pipe closes, the group is told to end, and killed after GRACE seconds. A benchmark that ended the server
itself kills this first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time


def main(grace: float) -> None:
    """Wait for the pipe to close, then end the group it named, if it named one."""
    line = sys.stdin.readline()
    sys.stdin.read()
    if not line:
        return
    group = int(line)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.05)
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main(float(sys.argv[1]))
