"""The arms by name: which program each is, where it runs, and what it is called in tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["adabest", "hand-written", "framework"]
Precision = Literal["float32", "tf32", "bf16"]


@dataclass(frozen=True)
class Arm:
    """One way to train a round.

    Attributes:
        name: What the command line calls it.
        label: What tables call it.
        kind: This package, code written for the benchmark, or somebody's framework.
        module: Its program, in ``benchmarks/arms``.
        options: Options for the program.
        environment: Whose environment it runs in (a file of that name lies in ``benchmarks/peers``); None for this one.
        device: Where it runs.
        precision: What it multiplies in, and so which peak it is measured against.
        variables: Environment variables of its process.
        plain_only: Whether it leaves out tasks that aren't plain, as its program lacks their layers.
    """

    name: str
    label: str
    kind: Kind
    module: str
    options: tuple[str, ...] = ()
    environment: str | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    precision: Precision = "float32"
    variables: Mapping[str, str] = field(default_factory=dict)
    plain_only: bool = False


# glibc gives large blocks back to the system at once, and gets them anew at the next step, page by page. Not so here.
_KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "2147483647"}

CPU: tuple[Arm, ...] = (
    Arm("adabest", "adabest", "adabest", "adabest"),
    Arm("adabest-reference", "adabest, reference engine", "adabest", "adabest", ("--engine", "reference")),
    Arm("plain", "plain torch loop", "hand-written", "plain"),
    Arm("plain-two", "plain torch loop, two processes", "hand-written", "plain", ("--processes", "2")),
    Arm(
        "plain-tuned",
        "plain torch loop, tuned",
        "hand-written",
        "plain",
        ("--channels-last",),
        variables=_KEEP_MEMORY,
    ),
    Arm("torch-vmap", "torch.func vmap", "hand-written", "torch_vmap"),
    Arm("jax", "JAX vmap + scan", "hand-written", "jax_scan", environment="jax"),
    Arm("drjax", "DrJAX", "framework", "drjax", environment="drjax"),
    Arm("fedjax", "FedJAX", "framework", "fedjax", environment="fedjax"),
    Arm("flower", "Flower", "framework", "flower", environment="flower"),
    Arm("pfl", "pfl-research", "framework", "pfl", environment="pfl"),
    Arm("fedlab", "FedLab", "framework", "fedlab", environment="fedlab"),
    Arm("fedsim", "fedsim", "framework", "fedsim", environment="fedsim"),
)


_PLAIN_ONLY = {"cuda.im2col", "cuda.jax_vmap", "cuda.drjax_map"}


def _on_gpu(name: str, label: str, kind: Kind, module: str, *options: str, precision: Precision = "bf16") -> Arm:
    return Arm(
        name,
        label,
        kind,
        module,
        ("--precision", precision, *options),
        device="cuda",
        precision=precision,
        plain_only=module in _PLAIN_ONLY,
    )


CUDA: tuple[Arm, ...] = (
    _on_gpu("adabest", "adabest", "adabest", "adabest"),
    _on_gpu("adabest-tf32", "adabest", "adabest", "adabest", precision="tf32"),
    _on_gpu("eager", "eager torch loop", "hand-written", "cuda.eager", precision="tf32"),
    _on_gpu("eager-bf16", "eager torch loop", "hand-written", "cuda.eager"),
    _on_gpu("graph", "the loop as a CUDA graph", "hand-written", "cuda.graph", precision="tf32"),
    _on_gpu("graph-bf16", "the loop as a CUDA graph", "hand-written", "cuda.graph"),
    _on_gpu("vmap", "torch vmap, CUDA graph", "hand-written", "cuda.vmap", precision="tf32"),
    _on_gpu("vmap-bf16", "torch vmap, CUDA graph", "hand-written", "cuda.vmap"),
    _on_gpu("im2col", "torch im2col and bmm, CUDA graph", "hand-written", "cuda.im2col", precision="tf32"),
    _on_gpu("im2col-bf16", "torch im2col and bmm, CUDA graph", "hand-written", "cuda.im2col"),
    _on_gpu("im2col-compiled", "torch im2col and bmm, compiled", "hand-written", "cuda.im2col", "--compile"),
    _on_gpu("jax", "JAX vmap and scan", "hand-written", "cuda.jax_vmap", precision="tf32"),
    _on_gpu("jax-bf16", "JAX vmap and scan", "hand-written", "cuda.jax_vmap"),
    _on_gpu("jax-im2col", "JAX vmap and scan, im2col", "hand-written", "cuda.jax_vmap", "--im2col", precision="tf32"),
    _on_gpu("jax-im2col-bf16", "JAX vmap and scan, im2col", "hand-written", "cuda.jax_vmap", "--im2col"),
    _on_gpu("drjax-bf16", "DrJAX", "framework", "cuda.drjax_map"),
    _on_gpu("drjax-im2col-bf16", "DrJAX, im2col", "framework", "cuda.drjax_map", "--im2col"),
    _on_gpu("pfl", "pfl", "framework", "cuda.pfl_simulation", precision="tf32"),
    _on_gpu("pfl-bf16", "pfl", "framework", "cuda.pfl_simulation"),
    _on_gpu("pfl-5", "pfl, 5 processes", "framework", "cuda.pfl_simulation", "--processes", "5", precision="tf32"),
)

# The same name may stand for a CPU arm and a CUDA arm.
ARMS: Mapping[str, Mapping[str, Arm]] = {
    "cpu": {arm.name: arm for arm in CPU},
    "cuda": {arm.name: arm for arm in CUDA},
}
