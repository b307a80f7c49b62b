"""What was measured on: hardware, versions, the commit, and how fast the machine can multiply."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from adabest.errors import InputError

ROOT = Path(__file__).parent.parent
_SIZES = {"cpu": 4096, "cuda": 8192}
_PRODUCTS = {"cpu": 3, "cuda": 30}


def describe(device: str, command: str, commit: str | None = None) -> dict[str, Any]:
    """What belongs beside every number."""
    hardware = {"processor": _processor(), "cores": len(os.sched_getaffinity(0)), "memory_gib": _memory()}
    if device == "cuda":
        hardware |= {
            "gpu": torch.cuda.get_device_name(),
            "gpu_memory_gib": round(torch.cuda.get_device_properties(0).total_memory / 2**30),
        }
    packages = ("adabest", "torch", "numpy")
    return {
        "device": device,
        "command": command,
        "commit": commit or _commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "hardware": hardware,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
    }


def check(device: str) -> None:
    """Makes sure that a device is there.

    Raises:
        InputError: If it isn't.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no CUDA device here")


def words(run: dict[str, Any]) -> str:
    """A run's hardware and versions in a sentence."""
    hardware = run["hardware"]
    gpu = f", {hardware['gpu']} of {hardware['gpu_memory_gib']} GiB" if "gpu" in hardware else ""
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return f"{hardware['cores']} cores of {hardware['processor']}, {hardware['memory_gib']} GiB{gpu}; {versions}"


def peaks(device: str, precisions: Iterable[str]) -> dict[str, float]:
    """How many floating-point operations a second a product of large matrices reaches, by precision."""
    return {precision: _peak(device, precision) for precision in sorted(set(precisions))}


def _peak(device: str, precision: str) -> float:
    """The best of several products: n³ multiplications and additions each."""
    n = _SIZES[device]
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    before, seconds = torch.backends.cuda.matmul.allow_tf32, []
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        for _ in range(_PRODUCTS[device]):
            begun = time.perf_counter()
            torch.matmul(a, a)
            if device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return 2 * n**3 / min(seconds)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """The commit that is checked out, and whether anything differs from it."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + (" and changes" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
