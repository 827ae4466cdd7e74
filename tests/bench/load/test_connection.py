from __future__ import annotations

import errno
import socket
import ssl

import pytest

from octavo.bench.load.connection import reason


def untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (OSError(errno.EMFILE, ""), "Too many open files"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "wrong version number"), "wrong version number"),
        (untrusted(), "its certificate is not trusted: self-signed certificate"),
        (OSError("Multiple exceptions"), "Multiple exceptions"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_why_a_socket_failed(error: OSError, said: str) -> None:
    assert reason(error) == said
