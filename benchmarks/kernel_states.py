"""Two states of this package: whether the kernels of a local step on a GPU are the same code; prints a table.

All kernels of a step of the paper's CNN and MLP in bfloat16, with and without an offset, are compiled for one kind of
GPU. None is needed for that. What is compared are PTX's instructions. How the arguments of a kernel are numbered isn't,
since one that isn't used makes no instruction.

python benchmarks/kernel_states.py BEFORE [AFTER] [--capability 90] [--works CNN MLP]

BEFORE and AFTER are checkouts (``git archive COMMIT | tar -x -C FOLDER``); AFTER is by default this one.
"""

import argparse
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
CLIENTS = 2
WORKS = ("CNN", "MLP")
_OWN = {"TRITON_INTERPRET": "0"}  # what is interpreted has no code
_TYPES = {"float32": "fp32", "float64": "fp64", "bfloat16": "bf16", "float16": "fp16", "uint8": "u8"}
_NO_INSTRUCTION = re.compile(r"\.(loc|file|section|b8|b16|b32|b64|version|target|address_size|param|visible)\b|[{}()]")
_ARGUMENT = re.compile(r"\w+_param_\d+")


def serve(capability: int, works: list[str]) -> None:
    """Prints a digest of the instructions of each kernel, by work."""
    import torch

    kernels: Any = importlib.import_module("benchmarks.kernels")  # of the state, as the package is
    program = importlib.import_module("adabest.engine.gpu.program")
    fused = importlib.import_module("adabest.engine.gpu.kernels.fused")
    launches = importlib.import_module("adabest.engine.gpu.kernels.launches")
    kernels.GPU = torch.device("cpu")  # kernels are compiled, and never run
    found: dict[str, dict[str, str]] = {}

    def launch(kernel: Any, grid: Any, *arguments: Any, **options: Any) -> None:
        own = found[work]
        own[f"{kernel.fn.__name__} {len(own)}"] = digest(instructions(kernel, arguments, options, capability))

    real = launches.launch
    for module in list(sys.modules.values()):
        if vars(module).get("launch") is real:
            vars(module)["launch"] = launch
    for case in kernels.TIMED:
        name = case[0].partition(",")[0].upper()
        if name not in works:
            continue
        own = kernels.setting(case, fused.Fused("tf32"), torch.bfloat16, torch.float32)
        made = program.Program(own, CLIENTS, kernels.STEPS, kernels.GPU)
        for has_offset in (False, True):
            work = f"{name}, {'an' if has_offset else 'no'} offset"
            found[work] = {}
            made._work(program.StepKind(has_codes=True, has_offset=has_offset))
            made._step.zero_()
    print(json.dumps(found))


def instructions(kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any], capability: int) -> list[str]:
    """The instructions of a kernel that is called with some arguments, those of PTX."""
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants, attributes = {}, {}, {}
    for place, (parameter, value) in enumerate(zip(kernel.params, arguments, strict=True)):
        if parameter.is_constexpr:
            signature[parameter.name], constants[place,] = "constexpr", value
            continue
        is_tensor = isinstance(value, torch.Tensor)
        kind = str(value.dtype).removeprefix("torch.") if is_tensor else ""
        signature[parameter.name] = f"*{_TYPES.get(kind, kind.replace('int', 'i'))}" if is_tensor else "i32"
        if not parameter.do_not_specialize_on_alignment and (is_tensor or value % 16 == 0):
            attributes[place,] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return without_numbers(compiled.asm["ptx"])


def without_numbers(ptx: str) -> list[str]:
    """PTX's instructions, whose arguments are numbered in the order in which they are used."""
    lines = (re.sub(r"//.*", "", line).strip() for line in ptx.splitlines())
    numbers: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"argument {len(numbers)}")

    kept = [line for line in lines if line and not _NO_INSTRUCTION.match(line) and not line.startswith("$L__tmp")]
    return [_ARGUMENT.sub(numbered, line) for line in kept]


def digest(lines: list[str]) -> str:
    """A digest of lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def compare(before: Path, after: Path, capability: int, works: list[str]) -> list[tuple[str, int, int, int]]:
    """By work: how many kernels each state has, and how many of them are the same code in both."""
    earlier, later = (of_state(state, capability, works) for state in (before, after))
    return [
        (work, len(earlier[work]), len(own), sum(earlier[work].get(name) == code for name, code in own.items()))
        for work, own in later.items()
    ]


def of_state(state: Path, capability: int, works: list[str]) -> dict[str, dict[str, str]]:
    """The digests of a checkout, from a process of its own."""
    state = state.resolve()
    asked = ["--serve", "--capability", str(capability), "--works", *works]
    said = subprocess.run(
        [sys.executable, "-P", str(Path(__file__).resolve()), *asked],
        env={**os.environ, **_OWN, "PYTHONPATH": os.pathsep.join([str(state), str(state / "src")])},
        cwd=state,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, str]] = json.loads(said.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Compares and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", type=Path, help="a checkout of the earlier state")
    parser.add_argument("after", nargs="?", type=Path, default=HERE, help="a checkout of the later state")
    parser.add_argument("--capability", type=int, default=90, help="the compute capability, 90 for an H100 or H200")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS), help="what a step is of")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.capability, options.works)
        return
    if options.before is None:
        parser.error("name a checkout of the earlier state")
    print("| a step of | kernels before | kernels after | the same code |\n|---|---:|---:|---:|")
    for row in compare(options.before, options.after, options.capability, options.works):
        print("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    main()
