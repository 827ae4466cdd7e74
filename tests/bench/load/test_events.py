from __future__ import annotations

import msgspec
import pytest

from octavo.bench.load.events import decode_event, error_message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "no such model", "code": 404}}', "no such model"),
        (b'{"error": "no such model"}', "no such model"),
        (b'{"object": "error", "message": "no such model"}', "no such model"),
        (b'{"detail": [{"msg": "too long"}]}', "[{'msg': 'too long'}]"),
        (b"<html>\n  <b>502</b>\n</html>", "<html> <b>502</b> </html>"),
        (b"\xff\xfe", "��"),
        (b"", ""),
        (b"x" * 1000, "x" * 300),
    ],
)
def test_what_an_error_says_in_one_line(body: bytes, said: str) -> None:
    assert error_message(body) == said


def test_thoughts_are_text() -> None:
    event = decode_event(b'{"choices": [{"delta": {"reasoning_content": "hm", "content": null}, "index": 0, "more": [1]}], "usage": null}')
    assert event.choices[0].delta is not None and event.choices[0].delta.text == "hm"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"choices": [{"text": 5}]}', b'{"choices": {}}'])
def test_what_is_no_event(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_event(data)
