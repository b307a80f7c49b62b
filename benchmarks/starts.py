"""``python -m benchmarks.starts``: how long commands take to start, beside Python and torch alone.

Every case is measured once in every repeat, one after another, so that a busy machine slows down all of them; the table
has medians, and their ratios to ``python -c pass`` and ``python -c "import torch"``.
"""

import argparse
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PYTHON, TORCH, FIRST_ROUND = 'python -c "pass"', 'python -c "import torch"', "adabest run, first round"
# Seconds beyond a base that a start may take on an idle machine; the base is nothing, or the import of torch.
LIMITS = {
    "adabest --version": (None, 0.3),
    "adabest --help": (None, 0.3),
    "adabest datasets --help": (None, 0.6),
    "adabest partition --help": (None, 0.6),
    "adabest reproduce --help": (None, 0.6),
    "adabest costs --help": (None, 0.6),
    "adabest export --help": (None, 0.6),
    "adabest run --help": (TORCH, 0.3),
    "adabest compare --help": (TORCH, 0.3),
    FIRST_ROUND: (TORCH, 1.5),
}
_PATIENCE = 120.0  # seconds until the first round must have come


def measure(repeats: int, say: Callable[[str], None]) -> dict[str, float]:
    """The median of the seconds of each case."""
    seconds: dict[str, list[float]] = {}
    for number in range(repeats):
        say(f"repeat {number + 1} of {repeats}")
        for name, case in _cases().items():
            seconds.setdefault(name, []).append(case())
    return {name: statistics.median(values) for name, values in seconds.items()}


def table(medians: Mapping[str, float]) -> str:
    """The medians, their ratios, and whether each is within its limit."""
    lines = ["| start | seconds | ÷ pass | ÷ import torch | limit | |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for name, value in medians.items():
        limit, word = "", ""
        if name in LIMITS:
            base, beyond = LIMITS[name]
            limit = f"{beyond:g} s" if base is None else f"import torch + {beyond:g} s"
            word = "within" if value <= beyond + (0.0 if base is None else medians[base]) else "beyond"
        ratios = f"{value / medians[PYTHON]:.1f} | {value / medians[TORCH]:.2f}"
        lines.append(f"| `{name}` | {value:.3f} | {ratios} | {limit} | {word} |")
    return "\n".join(lines)


def _cases() -> dict[str, Callable[[], float]]:
    cases: dict[str, Callable[[], float]] = {
        PYTHON: lambda: _until_the_end("-c", "pass"),
        TORCH: lambda: _until_the_end("-c", "import torch"),
    }
    for name in LIMITS:
        if name != FIRST_ROUND:
            words = name.split()[1:]
            cases[name] = functools.partial(_until_the_end, "-m", "adabest", *words)
    return {**cases, FIRST_ROUND: _until_the_first_round}


def _until_the_end(*words: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def _until_the_first_round() -> float:
    """From the start of a run on the digits to the first row of its metrics."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = ["run", "--evaluate-every", "1", "--rounds", "10000", "--out", str(run)]
        begun = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", "adabest", *words], stderr=subprocess.DEVNULL)
        try:
            metrics = run / "metrics.jsonl"
            while not (metrics.is_file() and metrics.stat().st_size > 0):
                assert process.poll() is None, "the run ended before its first round"
                assert time.perf_counter() - begun < _PATIENCE, "the first round doesn't come"
                time.sleep(0.005)
            return time.perf_counter() - begun
        finally:
            process.kill()
            process.wait()


def main(words: Sequence[str] | None = None) -> int:
    """Parses, measures, prints; 1 if a start takes longer than its limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starts", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="how often everything is measured")
    arguments = parser.parse_args(words)
    medians = measure(arguments.repeats, lambda text: print(text, file=sys.stderr))
    text = table(medians)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n\n{text}")
    return 1 if "| beyond |" in text else 0


if __name__ == "__main__":
    sys.exit(main())
