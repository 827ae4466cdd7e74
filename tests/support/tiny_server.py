"""A small random Llama in fp32, with two end-of-sequence tokens, behind the real server; and transformers' own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.config import AsyncEngineArgs
from support import tiny_models
from support.live_server import LiveServer
from support.outputs import TOKENIZER
from support.toy_tokenizer import write_tokenizer

VOCAB, EOS = 270, (0, 77)


@dataclass
class TinyServer:
    """``oracle``: transformers' model, in fp32 and eval mode."""

    server: LiveServer
    oracle: Any

    @classmethod
    def start(cls, folder: Path) -> TinyServer:
        """With 64 blocks of KV and 8 places in the batch."""
        oracle = tiny_models.make("llama", folder, vocab_size=VOCAB, eos_token_id=EOS[0], bos_token_id=None, pad_token_id=None)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": EOS}))
        write_tokenizer(folder, TOKENIZER)
        args = AsyncEngineArgs(model=str(folder), dtype="float32", num_gpu_blocks_override=64, max_num_seqs=8)
        return cls(LiveServer(args), oracle)
