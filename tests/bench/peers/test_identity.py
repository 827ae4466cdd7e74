"""Files by their content, folders by a name."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.peers.identity import Names, names_for, weights_files

NAMES = Names({Path("/opt/peers"): "$OCTAVO_PEERS", Path("/opt/peers/src"): "$SRC", Path("/srv/octavo"): "$CHECKOUT"})


def test_the_weights_of_a_file_and_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "w.gguf").write_bytes(b"weights")
    one = weights_files(str(tmp_path / "w.gguf"), "$OCTAVO_PEERS/w.gguf")
    assert one is not None and (one.name, one.files, one.bytes) == ("$OCTAVO_PEERS/w.gguf", 1, 7)
    assert one.sha256 == hashlib.sha256(b"weights").hexdigest()
    (tmp_path / "hf" / "deep").mkdir(parents=True)
    (tmp_path / "hf" / "deep" / "b").write_bytes(b"bb")
    (tmp_path / "hf" / "a").write_bytes(b"a")
    lines = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in (("a", b"a"), ("b", b"bb")))
    both = weights_files(str(tmp_path / "hf"), "hf")
    assert both is not None and (both.files, both.bytes, both.sha256) == (2, 3, hashlib.sha256(lines.encode()).hexdigest())


def test_no_weights_are_told_and_none_are_there(tmp_path: Path) -> None:
    assert weights_files("", "") is None and weights_files(str(tmp_path / "none"), "none") is None


def test_folders_go_under_their_names_however_deep() -> None:
    found = NAMES.put_into({"log": ["/opt/peers/bin/x: not found", 3, None], "env": ("a:/opt/peers/lib:/srv/octavo",)})
    assert found == {"log": ["$OCTAVO_PEERS/bin/x: not found", 3, None], "env": ["a:$OCTAVO_PEERS/lib:$CHECKOUT"]}
    assert NAMES.put_into("/opt/peers/src/a in 'file:///srv/octavo/b'.") == "$SRC/a in 'file://$CHECKOUT/b'."


def test_other_folders_stay() -> None:
    for text in ("/opt/peers4/x", "/opt/peers-old", "/opt/peers.bak", "/mnt/opt/peers", "/srv/octavo_2"):
        assert NAMES.put_into(text) == text


@given(st.text(alphabet="/optpeers .:'x", max_size=40))
def test_putting_names_twice_changes_no_more(text: str) -> None:
    once = NAMES.put_into(text)
    assert NAMES.put_into(once) == once


def test_the_places_of_a_comparison(tmp_path: Path) -> None:
    checkout, venv, peers = tmp_path / "code", tmp_path / "code" / ".venv", tmp_path / "peers"
    (checkout / ".git").mkdir(parents=True)
    (checkout / "benchmarks").mkdir()
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    names = names_for(peers, checkout / "benchmarks" / "c.toml", str(venv / "bin" / "python"))
    told = names.put_into([f"{venv}/lib/x.py", f"{checkout}/src/y.py", f"{peers}/models/m.gguf"])
    assert told == ["$VENV/lib/x.py", "$CHECKOUT/src/y.py", "$OCTAVO_PEERS/models/m.gguf"]
