"""Descriptions of servers: what they come to on a machine, and what is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from octavo.bench.peers.description import Places, load_description, parse_description
from octavo.errors import InvalidRequestError

SHIPPED = Path(__file__).parents[3] / "benchmarks" / "peers"
PLACES = Places(peers=Path("/opt/peers"), model="small", cpus=[2, 5], python="/usr/bin/python3")
TEXT = """
name = "Engine"
port = 9000
command = ["{peers}/bin/engine", "--model", "{model}.{format}", "--port", "{port}", "-t", "{threads}", "--cpus", "{cpus}"]
weights = "Q4"
notes = "Plain."
weights_file = "{peers}/{model}.{format}"
[env]
PRELOAD = "{peers}/lib"
[values]
format = "q4"
[variants.big]
values = { format = "bf16" }
args = ["--batch", "{threads}"]
env = { MORE = "1" }
weights = "bf16"
notes = "Big."
"""


def parse(text: str, variant: str = ""):
    return parse_description(tomllib.loads(text), "engine.toml", variant, PLACES, Path("/repo/peers"))


def test_placeholders_are_filled_in() -> None:
    server = parse(TEXT)
    assert server.command == ("/opt/peers/bin/engine", "--model", "small.q4", "--port", "9000", "-t", "2", "--cpus", "2,5")
    assert server.env == {"PRELOAD": "/opt/peers/lib"}
    assert (server.url, server.ready_url) == ("http://127.0.0.1:9000", "http://127.0.0.1:9000/health")
    assert (server.served_model, server.endpoint, server.prompts, server.tested) == ("small", "/v1/completions", "tokens", True)


def test_a_variant_changes_values_and_adds_arguments() -> None:
    server = parse(TEXT, "big")
    assert server.command[2:3] + server.command[-2:] == ("small.bf16", "--batch", "2")
    assert (server.weights_file, server.shown_weights_file) == ("/opt/peers/small.bf16", "$OCTAVO_PEERS/small.bf16")
    assert server.env == {"PRELOAD": "/opt/peers/lib", "MORE": "1"}
    assert (server.weights, server.notes) == ("bf16", "Plain. Big.")


def test_what_a_report_shows_names_no_place_of_this_machine() -> None:
    server = parse(TEXT.replace('"{peers}/bin/engine"', '"{python}", "{here}/engine.py", "{peers}/engine"'))
    assert server.shown_command[:3] == ("python", "./engine.py", "$OCTAVO_PEERS/engine")
    assert server.command[:3] == ("/usr/bin/python3", "/repo/peers/engine.py", "/opt/peers/engine")
    assert server.shown_env == {"PRELOAD": "$OCTAVO_PEERS/lib"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("{format}", "{fromat}"), r"command = '\{model\}\.\{fromat\}': no such placeholder, \{fromat\}"),
        (("port = 9000", "port = 0"), "port = 0: it must be an integer from 1 to 65535"),
        (("port = 9000", ""), "port is missing"),
        (("notes", "note"), r"\[variants.big\] note = 'Big.': there is no such key here"),
        (('weights = "Q4"', 'weights = "Q4"\nquant = 4'), "quant = 4: there is no such key here"),
        (('args = ["--batch", "{threads}"]', "args = [1]"), r"\[variants.big\] args = \[1\]: it must be a list of strings"),
        (('MORE = "1"', "MORE = 1"), r"\[variants.big\] env = .*: it must be a table of strings"),
        (('weights = "Q4"', 'weights = "Q4"\nready = "health"'), "ready = 'health': it must be a path of the server, from /"),
        (('weights = "Q4"', 'weights = "Q4"\nendpoint = "/v2"'), "endpoint = '/v2': choose one of"),
        (('weights = "Q4"', 'weights = "Q4"\ntested = "no"'), "tested = 'no': it must be true or false"),
    ],
)
def test_bad_descriptions_are_refused_by_file_key_value_and_limit(change: tuple[str, str], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"^engine.toml: .*{said}|^engine.toml: {said}"):
        parse(TEXT.replace(*change), "big")


def test_a_variant_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequestError, match=r"variants = \['big'\]: there is no 'small'"):
        parse(TEXT, "small")


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_description_holds_in_every_variant(path: Path) -> None:
    tables = tomllib.loads(path.read_text())
    if "engines" in tables:
        pytest.skip("a comparison")
    for variant in ("", *tables.get("variants", {})):
        server = load_description(path, variant, PLACES)
        told = " ".join([*server.command, *server.env.values(), *server.shown_command, *server.version_command])
        assert not re.search(r"[{}]", told)
        assert str(Path.home()) not in " ".join(server.shown_command)
        assert bool(server.weights_file) == (path.stem != "ollama")  # it keeps weights in a store of its own
        assert server.tested == (path.stem not in ("ollama", "tensorrt_llm"))


def test_no_two_shipped_servers_share_a_port() -> None:
    ports = [load_description(path, "", PLACES).url for path in SHIPPED.glob("*.toml") if "engines" not in tomllib.loads(path.read_text())]
    assert len(ports) == len(set(ports)) == 6
