"""A GGUF file, dequantized to bf16, as a folder that transformers and vLLM read: python convert_weights.py FILE.gguf FOLDER

Weights, config and tokenizer are transformers' own reading of the file. Two things it does not carry over are read from the file's
metadata: the epsilon of the norms, and which tokens begin and end.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from gguf import GGUFReader
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.utils.quantization_config import GgufConfig


def convert(file: Path, folder: Path) -> None:
    """Write ``folder``. Raises KeyError for a file of another architecture than Llama's."""
    options = {"gguf_file": file.name, "local_files_only": True}
    read = AutoModelForCausalLM.from_pretrained(
        file.parent, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True), **options
    )
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **options)
    metadata = GGUFReader(file)

    def value(key: str) -> float | int:
        return metadata.fields[key].contents()

    settings = read.config.to_dict()
    settings.pop("quantization_config", None)
    settings |= {"rms_norm_eps": round(value("llama.attention.layer_norm_rms_epsilon"), 9), "architectures": ["LlamaForCausalLM"]}
    plain = LlamaForCausalLM(LlamaConfig(**settings))  # without any trace of the quantizer
    missing = plain.load_state_dict(read.state_dict(), strict=False).missing_keys
    assert set(missing) <= {"lm_head.weight"}, f"not in the file: {missing}"
    plain.tie_weights()
    plain = plain.to(torch.bfloat16).eval()
    plain.config.dtype = torch.bfloat16
    first, last = (value(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
    plain.generation_config = GenerationConfig(bos_token_id=first, eos_token_id=last, pad_token_id=last)
    plain.save_pretrained(folder)
    tokenizer.model_max_length = settings["max_position_embeddings"]
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
