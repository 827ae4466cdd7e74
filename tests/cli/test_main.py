"""The command as a user runs it: one line for each error, and help that answers at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import octavo
from octavo.cli.main import COMMANDS, app
from support.live_server import TESTS
from support.outputs import IDS, OUTPUTS, TOKENIZER
from support.scripted import SCRIPTED, Script
from support.toy_tokenizer import write_model


def octavo_command(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(
        [sys.executable, "-m", "octavo", *arguments], input=stdin, capture_output=True, text=True, timeout=60, env=environment
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"), Script(outputs=[OUTPUTS["letters"], [IDS["Hello"], IDS[" world"]]]), TOKENIZER)


@pytest.mark.parametrize(
    ("arguments", "status", "parts"),
    [
        (["serve", "--max-num-seqs", "0"], 2, ["--max-num-seqs", "0", "1 to 65536"]),
        (["serve", "--max-num-seqs", "many"], 2, ["--max-num-seqs", "many", "integer"]),
        (["serve", "--port", "99999"], 2, ["--port", "99999", "65535"]),
        (["serve", "--port=x"], 2, ["--port", "x", "integer"]),
        (["serve", "--quantization", "int3"], 2, ["--quantization", "int3", "int8, int4"]),
        (["serve", "--chat-template", "/nowhere.jinja"], 2, ["--chat-template", "/nowhere.jinja"]),
        (["serve", "--nonsense", "1"], 2, ["--nonsense"]),
        (["generate", "m", "text", "--temperature", "-1"], 2, ["--temperature", "-1", "0 to 100"]),
        (["nonsense"], 2, ["nonsense"]),
        (["pull"], 2, ["model"]),
        (["pull", "no such model"], 1, ["MODEL", "no such model", "smollm2"]),
    ],
)
def test_errors_take_one_line(arguments: list[str], status: int, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app(arguments) == status
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("octavo: ")]
    assert len(lines) == 1
    assert all(part in lines[0] for part in parts)


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in ("serve", "generate", "chat", "pull", "inspect", "bench", "version"))


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["version"]) == 0
    assert capsys.readouterr().out == f"{octavo.__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from octavo.cli.main import app; app(['serve', '--help']); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(result.stdout.splitlines()[-1].split())
    assert {"msgspec", "octavo.cli.serve"} <= modules
    assert not modules & {"numpy", "fastapi", "uvicorn", "tokenizers", "jinja2", "huggingface_hub", "zmq"}
    others = {name.replace("-", "_") for name in COMMANDS} - {"serve", "pull"}  # serve fetches as pull does
    assert not modules & {f"octavo.cli.{name}" for name in others}


def test_generate_completes_arguments_and_standard_input(model: str) -> None:
    options = (model, "--runner-cls", SCRIPTED, "--seed", "0")
    assert octavo_command("generate", *options, "one", "--max-tokens", "1", "--echo").stdout.startswith("one")
    result = octavo_command("generate", *options, stdin="from a pipe")
    assert result.returncode == 0, result.stderr
    assert result.stdout in ("ABCDEFGHIJ\n", "Hello world\n")


def test_chat_answers_each_line_of_a_pipe(model: str) -> None:
    lines = "hi\n/params\n/set temperature 5000\n/set top_k 7\n/system Be brief.\n/help\n/bogus\nagain\n/exit\nnever read\n"
    result = octavo_command("chat", model, "--runner-cls", SCRIPTED, stdin=lines)
    assert result.returncode == 0, result.stderr
    answers = [line for line in result.stdout.splitlines() if line in ("ABCDEFGHIJ", "Hello world")]
    assert len(answers) == 2
    assert "top_k = 7" in result.stdout
    assert "system: Be brief." in result.stdout
    assert "/reset" in result.stdout
    assert "temperature = 5000" in result.stderr
    assert "/bogus" in result.stderr
    assert "Traceback" not in result.stderr


def test_chat_without_a_template_says_so(model: str, tmp_path: Path) -> None:
    plain = write_model(tmp_path, Script(), TOKENIZER)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    result = octavo_command("chat", plain, "--runner-cls", SCRIPTED, stdin="hi\n")
    assert "no chat template" in result.stderr and result.returncode == 2


def test_inspect_of_a_real_model(smollm2_path: Path) -> None:
    facts = json.loads(octavo_command("inspect", str(smollm2_path), "--json").stdout)
    assert facts["vocab_size"] == 49152
    formats = {tensor["stored"] for tensor in facts["details"]["tensors"]}
    assert {"Q4_1", "Q8_0", "F32"} <= formats
    shown = octavo_command("inspect", str(smollm2_path)).stdout
    assert all(word in shown for word in ("Q4_1", facts["isa"], "Program", "attention"))
