"""Make the fixtures of the tokenizer tests anew: what llama.cpp's server answers to /tokenize.

    python tests/tokenizer/make_fixtures.py LLAMA_SERVER SMOLLM2.gguf GEMMA3.gguf

LLAMA_SERVER is the binary of llama.cpp b11434. Beside the two real vocabularies it asks about small ones that are trained here:
one byte-level BPE vocabulary under each pre-tokenizer, and one SentencePiece vocabulary with and without a leading space.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

VERSION = "llama.cpp b11434"
FIXTURES = Path(__file__).parent / "fixtures"
PORT = 8290
PRE_TOKENIZERS = [
    "default", "gpt-2", "smollm", "llama-bpe", "dbrx", "glm4", "qwen2", "qwen35", "tekken", "gpt-4o", "deepseek-llm", "deepseek-coder",
    "deepseek-v3", "falcon", "bloom", "viking",
]  # fmt: skip

PROSE = [
    "Hello world! Café déjà vu — 123 😊",
    "The quick brown fox jumps over the lazy dog, and I'm sure it'll do so again; they've seen it, WE'LL see, IT'S so.",
    "In 1984, 12345678 people (about 3.14159%) paid $1,000.00 — \"really?\" she asked… 'no', he said.",
    "  leading spaces", "trailing spaces   ", "a  b   c    d     e", " ", "  ", "", "\n", "\n\n\n", "\t\tx\n\ty\n", "\r\n\r\nx\r\n",
    " \n \n", "x \n  y", "\u00a0nbsp\u2003em\u3000ideographic\u2028line",
    "def fib(n: int) -> int:\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)  # slow\n",
    "for (let i=0; i<10; ++i) { console.log(`${i}: \\n`); } /* ok */ if(a!=b && c||!d) x+=1;",
    "SELECT * FROM t WHERE id=42 AND name LIKE '%_x%';", "<p class=\"a\">x &amp; y</p>", "https://example.org/a?b=c&d=%20#e",
    "今日はいい天気ですね。明日も晴れるでしょう！", "你好，世界！我有3只猫。", "안녕하세요 세계",
    "สวัสดีชาวโลก", "नमस्ते दुनिया", "Привет, мир! Ещё раз.",
    "مرحبا بالعالم ١٢٣", "שלום עולם", "Γειά σου Κόσμε", "Zażółć gęślą jaźń", "ďábelské ódy", "İstanbul ıI ǅ ß ﬁ",
    "e\u0301 a\u0308 n\u0303 (combining)", "🤦🏼‍♂️ 👨‍👩‍👧‍👦 🇩🇪 ❤️ ©™", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ½ ² Ⅷ ٣٤٥", "\ue000\ufffd",
    "▁under ▁▁score▁", "<0x0A> <0xE5>",
    "a" * 300, "ab" * 100, " " * 70 + "x", "\n" * 40 + "y", "\u0301" * 20, "1234567890" * 5,
    "AaBbCcDdEe", "camelCaseAndHTTPServer", "!?!?...---***", "''''s 't 'x",
]  # fmt: skip
SPECIAL = [
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", "<|im_end|><|im_end|> <|im_end|>", "<|im_start", "x<|endoftext|>y",
    "<start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\n", "<bos><eos><unk><pad>", "<unused7><unused77><unused777>",
    "<s>[INST] Hi [/INST] there </s>", "<table><tr><td>x</td></tr></table><s></s>", "  <|im_end|>  x", "\n\n<end_of_turn>\n\n",
]  # fmt: skip
PIECES = [
    "a", "the", " the", " ", "  ", "\n", "\t", "'s", "'LL", "1", "42", "2024", "é", "e\u0301", "日本", "語", "😊", "👨\u200d👩",
    "!", "...", " -", "ß", "Ω", "й", "ا", "\u00a0", "\r\n", "(", "{", "==", "_", "ing", "▁",
    "<|im_end|>", "<|im_start|>", "<end_of_turn>", "<bos>", "</s>", "<unused1>",
]  # fmt: skip


def corpus() -> list[str]:
    """Written texts, and random mixtures of pieces (always the same)."""
    rng = random.Random(7)
    mixtures = ["".join(rng.choices(PIECES, k=rng.randrange(2, 25))) for _ in range(120)]
    return [*PROSE, *SPECIAL, *mixtures]


@contextmanager
def server(binary: str, model: Path) -> Iterator[None]:
    """llama.cpp's server on one model, until the block ends."""
    command = [binary, "-m", str(model), "--port", str(PORT), "-c", "256", "-t", "1", "--no-warmup"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health")
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def ask(text: str) -> list[dict[str, Any]]:
    """llama.cpp's tokens: id, and piece as text or as a list of bytes."""
    body = {"content": text, "add_special": True, "parse_special": True, "with_pieces": True}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/tokenize", json.dumps(body).encode())
    tokens: list[dict[str, Any]] = json.load(urllib.request.urlopen(request))["tokens"]
    return tokens


def answers(texts: list[str]) -> dict[str, Any]:
    """Each text with its ids, and the bytes (in hex) of all ids that occur."""
    cases, pieces = [], {}
    for text in texts:
        tokens = ask(text)
        cases.append([text, [token["id"] for token in tokens]])
        for token in tokens:
            piece = token["piece"]
            pieces[token["id"]] = (piece.encode() if isinstance(piece, str) else bytes(piece)).hex()
    return {"cases": cases, "pieces": dict(sorted(pieces.items()))}


def train_bpe() -> dict[str, Any]:
    """A byte-level BPE vocabulary that merges across words, digits and spaces, so that each cut of a pre-tokenizer shows."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, max_token_length=12, show_progress=False)
    rng = random.Random(1)
    mixtures = ["".join(rng.choices([p for p in PIECES if "<" not in p], k=12)) for _ in range(2000)]
    tokenizer.train_from_iterator([*PROSE, *mixtures], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    special = ["<|begin|>", "<|im_end|>", "<|im_start|>", "<user> "]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens + special,
        "tokenizer.ggml.token_type": [1] * len(tokens) + [3, 3, 3, 4],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.bos_token_id": len(tokens),
        "tokenizer.ggml.eos_token_id": len(tokens) + 1,
    }


def count_spm(add_space_prefix: bool) -> dict[str, Any]:
    """A SentencePiece-like vocabulary: frequent substrings, some across words, scored by how often they occur; with many ties."""
    counts: dict[str, int] = {}
    for text in PROSE:
        text = text.replace(" ", "▁")
        for length in (1, 2, 3, 4, 6):
            for start in range(len(text) - length + 1):
                piece = text[start : start + length]
                counts[piece] = counts.get(piece, 0) + length
    others = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "<user>", "  ", "[INST]"]
    common = (p for p, n in counts.items() if n >= 4 and (len(p) > 1 or ord(p) < 0x3000) and p not in others)
    kept = sorted(common, key=lambda p: (-counts[p], p))[:800]
    scores = [0.0] * len(others) + [round(math.log(counts[p]), 1) for p in kept]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": others + kept,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [4] * 3 + [1] * len(kept),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": add_space_prefix,
        "tokenizer.ggml.add_eos_token": not add_space_prefix,
    }


def write_model(path: Path, metadata: dict[str, Any]) -> None:
    """The smallest llama model with this vocabulary; its weights are zero."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in metadata.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}[type(value)]
        add(key, value)
    for name, count in {
        "context_length": 256, "embedding_length": 32, "block_count": 1, "feed_forward_length": 32, "attention.head_count": 1,
    }.items():  # fmt: skip
        writer.add_uint32(f"llama.{name}", count)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    shapes = {"token_embd": (len(metadata["tokenizer.ggml.tokens"]), 32), "output_norm": (32,)}
    for name in ("attn_norm", "ffn_norm"):
        shapes[f"blk.0.{name}"] = (32,)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        shapes[f"blk.0.{name}"] = (32, 32)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def save(name: str, content: dict[str, Any]) -> None:
    """One fixture, a case on each line."""
    FIXTURES.mkdir(exist_ok=True)
    cases = ",\n".join(json.dumps(case, ensure_ascii=True) for case in content.pop("cases"))
    rest = json.dumps({"version": VERSION, **content}, ensure_ascii=True)
    (FIXTURES / f"{name}.json").write_text(f'{rest[:-1]},\n"cases": [\n{cases}\n]}}\n', encoding="utf-8")


def main(binary: str, smollm2: str, gemma3: str) -> None:
    texts = corpus()
    for name, path in (("smollm2", smollm2), ("gemma3", gemma3)):
        with server(binary, Path(path)):
            save(name, answers(texts))
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "tiny.gguf"
        vocabulary = train_bpe()
        cases = []
        for pre in PRE_TOKENIZERS:
            write_model(model, {**vocabulary, "tokenizer.ggml.pre": pre})
            with server(binary, model):
                cases += [[pre, *case] for case in answers(texts[: len(PROSE) + len(SPECIAL) + 30])["cases"]]
        save("tiny_bpe", {"metadata": vocabulary, "cases": cases})
        for prefix in (True, False):
            vocabulary = count_spm(prefix)
            write_model(model, vocabulary)
            with server(binary, model):
                save(f"tiny_spm_{'prefix' if prefix else 'plain'}", {"metadata": vocabulary, **answers(texts)})


if __name__ == "__main__":
    main(*sys.argv[1:])
