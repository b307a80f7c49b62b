"""The arms by name: which program each is, where it runs, and what it is called in tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["adabest", "hand-written", "framework"]


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
    """

    name: str
    label: str
    kind: Kind
    module: str
    options: tuple[str, ...] = ()
    environment: str | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    variables: Mapping[str, str] = field(default_factory=dict)


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

CUDA: tuple[Arm, ...] = ()

# The same name may stand for a CPU arm and a CUDA arm.
ARMS: Mapping[str, Mapping[str, Arm]] = {
    "cpu": {arm.name: arm for arm in CPU},
    "cuda": {arm.name: arm for arm in CUDA},
}
