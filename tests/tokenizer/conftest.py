"""Small vocabularies of every kind, made here or kept in fixtures/."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from octavo.tokenizer.gguf_vocab import tokenizer_from_metadata
from octavo.tokenizer.load import load_tokenizer
from octavo.tokenizer.tokenizer import Tokenizer

FIXTURES = Path(__file__).parent / "fixtures"
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]


@pytest.fixture(scope="session")
def answers() -> Callable[[str], dict[str, Any]]:
    """llama.cpp's answers by the fixture's name; see make_fixtures.py."""

    def load(name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))
        return content

    return load


@pytest.fixture(scope="session")
def corpus(answers: Callable[[str], dict[str, Any]]) -> list[str]:
    """Prose, code, CJK, emoji, accents, spaces, digits, special tokens, and mixtures of them."""
    return [text for text, _ in answers("smollm2")["cases"]]


def _byte_level() -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """As GPT-2, Llama 3 and Qwen; with a BOS that the post-processor adds."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}


def _llama2() -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """As Llama 2: a space before the text, byte fallback, and a space stripped from what is decoded."""
    tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer, {"limit_alphabet": 60, "initial_alphabet": ["▁"]}


def _gemma() -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """As Gemma: byte fallback, no space before the text."""
    tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer, {"limit_alphabet": 60, "initial_alphabet": ["▁"]}


def _metaspace() -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """As newer Llama 2 files and T5: "▁" is put before the first word."""
    tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    return tokenizer, {"limit_alphabet": 60, "initial_alphabet": ["▁"]}


def _write_folder(folder: Path, tokenizer: tokenizers.Tokenizer, options: dict[str, Any], texts: list[str]) -> None:
    fallback = [f"<0x{byte:02X}>" for byte in range(256)] if getattr(tokenizer.model, "byte_fallback", False) else []
    trainer = trainers.BpeTrainer(vocab_size=800, special_tokens=[*SPECIAL, *fallback], show_progress=False, **options)
    # Trained without a pre-tokenizer's or normalizer's help beyond the marks, so that merges cross words.
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([tokenizers.AddedToken("<tool>", normalized=False), "[spaced out]"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    state = json.loads(tokenizer.to_str())
    # Byte tokens were given as special ones to reserve their ids; in real files they are plain entries of the vocabulary.
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in fallback]
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 4]}), encoding="utf-8")


KINDS = {"byte_level": _byte_level, "llama2": _llama2, "gemma": _gemma, "metaspace": _metaspace}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory, corpus: list[str]) -> dict[str, Path]:
    """Hugging Face folders by kind."""
    root = tmp_path_factory.mktemp("hf")
    for kind, build in KINDS.items():
        _write_folder(root / kind, *build(), corpus * 4)
    return {kind: root / kind for kind in KINDS}


@pytest.fixture(scope="session")
def vocabularies(folders: dict[str, Path], answers: Callable[[str], dict[str, Any]]) -> dict[str, Tokenizer]:
    """A tokenizer of every kind, by name."""
    found = {kind: load_tokenizer(folder) for kind, folder in folders.items()}
    bpe = answers("tiny_bpe")["metadata"] | {"tokenizer.ggml.pre": "qwen2"}
    found["gguf_bpe"] = tokenizer_from_metadata(bpe, "tiny_bpe")
    for name in ("tiny_spm_prefix", "tiny_spm_plain"):
        found[name] = tokenizer_from_metadata(answers(name)["metadata"], name)
    return found


NAMES = [*KINDS, "gguf_bpe", "tiny_spm_prefix", "tiny_spm_plain"]


@pytest.fixture(params=NAMES)
def tokenizer(request: pytest.FixtureRequest, vocabularies: dict[str, Tokenizer]) -> Tokenizer:
    """Each of ``vocabularies`` in turn."""
    return vocabularies[request.param]
