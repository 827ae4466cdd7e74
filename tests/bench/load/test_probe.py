from __future__ import annotations

import socket

import pytest

from octavo.bench.load.probe import get_ready
from octavo.bench.load.target import Target
from octavo.errors import InvalidRequestError, OctavoError
from support.load import drawn
from support.mock_openai import MockServer

(SAMPLE,) = drawn([3.0], tokens=100)


def test_the_model_is_the_one_that_the_server_lists() -> None:
    with MockServer(model="a/model") as mock:
        ready = get_ready(mock.url, None, SAMPLE)
        assert mock.seen[0]["body"]["max_tokens"] == 4
    assert ready.target.model == "a/model"
    assert ready.target.stream_options == ("include_usage", "continuous_usage_stats")
    assert ready.notes == ()


@pytest.mark.parametrize("refused", ["continuous_usage_stats", "stream_options", "ignore_eos", "cache_salt"])
def test_a_field_that_the_server_refuses_is_dropped_and_said(refused: str) -> None:
    with MockServer(refused_fields=(refused,)) as mock:
        ready = get_ready(mock.url, None, SAMPLE, cache_salt="x")
        body = mock.seen[-1]["body"]
    assert refused not in {*body, *body.get("stream_options", {})}
    assert [note.split(":")[0] for note in ready.notes] == [f"the server takes no {refused}"]
    others = {"include_usage", "ignore_eos", "cache_salt"} - ({"include_usage"} if refused == "stream_options" else {refused})
    assert others <= {*body, *body.get("stream_options", {})}


def test_several_fields_that_the_server_refuses() -> None:
    with MockServer(refused_fields=("ignore_eos", "continuous_usage_stats")) as mock:
        assert len(get_ready(mock.url, None, SAMPLE).notes) == 2


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(InvalidRequestError, match=f"^url = {url}: no server answers there: Connection refused$"):
        get_ready(url, None, SAMPLE)


def test_a_host_that_is_not_there() -> None:
    with pytest.raises(InvalidRequestError, match=r"^url = http://no.such.host.invalid: no server answers there"):
        get_ready("http://no.such.host.invalid", None, SAMPLE)


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "ftp://127.0.0.1",
        "http://",
        "http://a:99999",
        "http://[::1",
        "http://a..b",
        "http://ä.example",
        "http://a/b c",
        "http://a/\n",
    ],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"^url = "):
        get_ready(url, None, SAMPLE)


@pytest.mark.parametrize("listed", [True, False])
def test_a_wrong_model_name(listed: bool) -> None:
    with MockServer(lists_models=listed) as mock, pytest.raises(InvalidRequestError, match=r"^model = nope: http") as error:
        get_ready(mock.url, "nope", SAMPLE)
    assert ("has mock" if listed else "The model `nope` does not exist.") in str(error.value)


def test_a_server_that_lists_nothing_needs_a_name() -> None:
    with MockServer(lists_models=False) as mock:
        with pytest.raises(InvalidRequestError, match="lists no models; name the one to ask for"):
            get_ready(mock.url, None, SAMPLE)
        assert get_ready(mock.url, "mock", SAMPLE).target.model == "mock"


def test_a_key_that_is_wrong() -> None:
    with MockServer(api_key="right") as mock:
        assert get_ready(mock.url, None, SAMPLE, api_key="right").target.api_key == "right"
        with pytest.raises(InvalidRequestError, match=r"^api_key: http.* says HTTP 401: invalid API key$"):
            get_ready(mock.url, None, SAMPLE, api_key="wrong")


def test_a_key_that_no_header_can_carry() -> None:
    with MockServer() as mock, pytest.raises(InvalidRequestError, match=r"^api_key: it must be of printable ASCII"):
        get_ready(mock.url, None, SAMPLE, api_key="a\nb")


@pytest.mark.parametrize("fields", [{"status": 503}, {"malformed_at": 0}, {"drop_at": 0}, {"status": 400}])
def test_a_server_that_does_not_answer_the_probe(fields: dict[str, int]) -> None:
    with MockServer(**fields) as mock, pytest.raises(OctavoError, match="did not answer a first short request") as error:
        get_ready(mock.url, None, SAMPLE)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://host:80", "http://host/v1/completions"),
        ("http://host:8000/v1/", "http://host:8000/v1/completions"),
        ("https://host/some/where", "https://host/some/where/v1/completions"),
        ("http://[::1]:8000", "http://[::1]:8000/v1/completions"),
    ],
)
def test_where_a_url_leads(url: str, endpoint: str) -> None:
    target = Target(url, "m")
    line, host, *_ = target.message(SAMPLE).decode().split("\r\n")
    scheme = "https" if target.address.tls else "http"
    assert f"{scheme}://{host.removeprefix('Host: ')}{line.split(' ')[1]}" == endpoint
