"""Types of the native module (csrc/). Arrays must be C-contiguous and of the given dtype; shapes are checked natively."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
F32Array = npt.NDArray[np.float32]
F64Array = npt.NDArray[np.float64]
BytesArray = npt.NDArray[np.uint8]

KERNEL_VERSION: int
"""Raised whenever a kernel changes the bits it produces."""

def supported_isas() -> list[str]:
    """Instruction sets this CPU can run, best first. x86: "avx512" (F, BW, VL, VNNI, BF16), "avx2" (with FMA, F16C); 64-bit Arm:
    "neon_i8mm" (I8MM, BF16), "neon_dotprod" (DOTPROD), "neon"; any: "generic"."""

def counters() -> tuple[int, int, int, int]:
    """Of this process since its start: how often the memory that weights, KV, programs and the sampler work in was taken from the system
    or grew, and by how many bytes; programs made; threads of pools started."""

class ThreadPool:
    """Pinned worker threads, created once; the calling thread is worker 0 and is not pinned. Workers spin briefly, then sleep."""

    def __init__(self, cpus: Sequence[int]) -> None:
        """One worker a CPU id, in order; -1 leaves that worker unpinned."""
    @property
    def num_threads(self) -> int: ...
    def close(self) -> None:
        """Join the workers. Idempotent."""

class PackedWeight:
    """A matrix [rows, columns] repacked for one instruction set's kernels; immutable."""

    def __init__(self, isa: str, pool: ThreadPool, format: str, rows: int, columns: int, data: BytesArray) -> None:
        """``data`` are the stored bytes [rows * row_bytes] of ``format`` (octavo.weights.formats); they are not kept."""
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def nbytes(self) -> int:
        """Bytes as packed."""
    @property
    def run_format(self) -> str:
        """The format it is run in, e.g. "Q4_1"; each is run at its own width."""
    @property
    def activation(self) -> str:
        """What its inputs become in ``linear``: "q8" (int8, groups of 32), "bf16" or "f32"."""
    def unpack(self) -> F32Array:
        """[rows, columns] dequantized; for tests."""

class KVStorage:
    """K and V of all layers: per layer ``num_blocks`` blocks of ``block_size`` slots, in the kernels' own tile layout."""

    def __init__(
        self,
        isa: str,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: str,
        scales: str = "none",
        layer_scales: Sequence[float] = ...,
        bf16_products: bool = ...,
    ) -> None:
        """``dtype`` and ``scales``: as octavo.ops.kv_format.KVFormat; ``layer_scales``: K's and V's of each layer in turn, 1 where there
        are none. ``bf16_products``: attention multiplies in bf16; not for "fp16" and "fp32". ``block_size`` is 8 or a multiple of 16,
        ``head_dim`` a multiple of 16 up to 512.

        Memory is reserved, and touched on first use.
        """
    @property
    def nbytes(self) -> int: ...
    @property
    def block_bytes(self) -> int:
        """Of one block, all layers: a block is one run of bytes."""
    def touch_blocks(self, first: int, count: int) -> None:
        """Take the memory of blocks ``first`` … ``first + count - 1`` (those that exist) from the system before they are written. What they
        hold stays. Without the GIL; any thread may call it beside any other call."""
    def copy_blocks(self, src: Int32Array, dst: Int32Array) -> None:
        """Block dst[i] becomes what block src[i] was before the call, also where a block is in both.

        This and the next three raise, before anything is moved, IndexError for a block that the storage does not have, and ValueError
        for one that would be written twice or for shapes that do not fit.
        """
    def export_blocks(self, blocks: Int32Array) -> BytesArray:
        """A copy of their bytes [blocks, block_bytes]."""
    def export_into(self, blocks: Int32Array, out: BytesArray) -> None:
        """The same into memory that is there; fresh memory costs more than the copy."""
    def import_blocks(self, blocks: Int32Array, data: BytesArray) -> None:
        """Set their bytes to ``data`` [blocks, block_bytes], which export_blocks of a storage of the same shape gave."""
    def counts(self) -> npt.NDArray[np.uint64]:
        """What writing 8-bit K and V met since the start [layers, 5]: vectors (K's; as many of V) written, K vectors and V vectors that
        got a scale of their own under "guarded", numbers of K and of V that were clipped under "static"."""
    def read(self, layer: int, block: int) -> tuple[F32Array, F32Array]:
        """K and V of one block, each [block_size, kv_heads, head_dim], as stored; for tests."""

class Program:
    """A flat list of op records over numbered buffers, run in one call with the GIL released.

    Buffers are [rows, columns]; rows follow the step: "tokens" or "logits". kinds: "f32", "q8" (int8 codes [columns], and of each
    group of 32 a fp32 scale, its sums, and the outlier with its place), "bf16". Buffer memory grows when a step needs more rows,
    and is kept.
    """

    def __init__(self, isa: str, pool: ThreadPool) -> None: ...
    def add_buffer(self, kind: str, columns: int, rows: str) -> int:
        """Returns the buffer's number."""
    def add_op(
        self,
        kind: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        weights: Sequence[PackedWeight | F32Array | F64Array | None],
        ints: Sequence[int],
        floats: Sequence[float],
    ) -> None:
        """Append an op. The kinds and their operands are listed in docs/native.md. Raises ValueError on a mismatch."""
    def reserve(self, kv: KVStorage | Sequence[KVStorage] | None, max_tokens: int, max_logits: int, max_seqs: int, max_length: int) -> None:
        """Make room for steps of up to so many tokens, logits rows and sequences, of up to ``max_length`` tokens each, over such ``kv``:
        they allocate nothing then. What is there already stays where it is, if it is large enough."""
    @property
    def reserved_bytes(self) -> int:
        """Of that room, what most steps use (logits of ``max_seqs`` rows), counted as one run of bytes."""
    def touch(self, offset: int, count: int) -> None:
        """Take bytes ``offset`` … ``offset + count - 1`` of ``reserved_bytes`` from the system, as KVStorage.touch_blocks does."""
    def run(
        self,
        kv: KVStorage | Sequence[KVStorage] | None,
        token_ids: Int32Array,
        positions: Int32Array,
        query_start: Int32Array,
        seq_lens: Int32Array,
        block_tables: Sequence[Int32Array],
        slot_mapping: Sequence[Int32Array],
        logits_rows: Int32Array,
    ) -> F32Array:
        """Run all ops for one step; returns a view [logits rows, columns] of the last op's output buffer, valid until the next run."""
    def read(self, buffer: int) -> F32Array:
        """A copy of a buffer after a run, dequantized; for tests."""
    def write(self, buffer: int, values: F32Array) -> None:
        """Set a f32 buffer before a run; for tests of single ops."""
    def set_timing(self, enabled: bool) -> None: ...
    def timings(self) -> list[tuple[str, float, int]]:
        """(op kind, seconds, calls) since timing was enabled."""

class SamplingScratch:
    """Memory that ``sample`` and ``logprobs`` work in, kept from call to call: for the threads of a pool (or fewer) and vocabularies of up
    to ``vocab`` tokens, above which it grows. The loops of a pool run one after another, so calls from several threads may share it."""

    def __init__(self, pool: ThreadPool, vocab: int) -> None: ...

class SamplingRules:
    """How each row of a batch is sampled: what of it stays from token to token. All lists are of one length."""

    def __init__(
        self, temperature: Sequence[float], top_k: Sequence[int], top_p: Sequence[float], min_p: Sequence[float], seeds: Sequence[int]
    ) -> None: ...

def sample(
    pool: ThreadPool,
    logits: F32Array,
    rules: SamplingRules,
    indices: Sequence[int],
    isa: str | None = None,
    scratch: SamplingScratch | None = None,
) -> list[int]:
    """One token id a row of ``logits`` [rows, vocab]; the rule is octavo.runner.sampling_reference's. ``indices`` [rows]: of the token in
    its request's output.

    -1 where the largest logit is not a finite number. ``isa`` None: the best one. ``scratch`` None: its memory is taken for this call.
    """

def logprobs(
    pool: ThreadPool, logits: F32Array, chosen: Int32Array, num: int, isa: str | None = None, scratch: SamplingScratch | None = None
) -> tuple[Int32Array, F32Array, F32Array, Int32Array]:
    """Log-softmax facts a row: the ``num`` likeliest ids (ties: lowest id first) and their log-probabilities [rows, num], then the
    chosen id's log-probability and rank [rows] (1 + the number of tokens with a higher logit)."""

def machine_rates(cpus: Sequence[int], seconds: float) -> dict[str, float]:
    """Measured with pinned threads on ``cpus``: read_bytes_s, int8_ops_s, bf16_flops_s, fp32_flops_s."""
