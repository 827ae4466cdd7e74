"""A small server with bad manners, for tests of who must cope with them: python small_server.py PORT [manner ...]

slow: ready after 0.5 s. dies: before it is ready, with a word. stubborn: ignores SIGTERM. quits: ends by itself at GET /quit.
children: forks two processes that hold memory. runaway: a child that ignores SIGTERM, in a session of its own.
"""

from __future__ import annotations

import http.server
import os
import signal
import sys
import time

HELD = 40 * 2**20
"""Bytes each of ``children`` holds for itself."""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        ready = time.monotonic() - started > delay
        self.send_response(200 if ready else 503)
        self.end_headers()
        if self.path == "/quit":
            os._exit(3)

    def log_message(self, *_: object) -> None:
        pass


def child(new_session: bool) -> None:
    if os.fork() == 0:
        server.socket.close()
        if new_session:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        held = b"\1" * HELD
        time.sleep(60 + held[0])
        os._exit(0)


port, manners = int(sys.argv[1]), sys.argv[2:]
started = time.monotonic()
delay = 0.5 if "slow" in manners else 0.0
if "dies" in manners:
    sys.exit("no such model")
if "stubborn" in manners:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
for _ in range(2 * ("children" in manners)):
    child(new_session=False)
if "runaway" in manners:
    child(new_session=True)
server.serve_forever()
