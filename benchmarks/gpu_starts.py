"""``python -m benchmarks.gpu_starts``: seconds from the start of a process to the end of its first round, on a GPU.

Each start is a fresh process: ``adabest run`` with the paper's CNN, 100 clients of which 10 train in a round, bfloat16
and flip-crop. It is measured with an empty cache of Triton's kernels and with a filled one; the table has the median of
each stage. A stage's seconds don't contain those of stages within it.
"""

import argparse
import functools
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

TOTAL, REST, ROUND = "process to first round", "the rest", "round"
LIMITS = {"nothing cached": 12.0, "kernels cached": 5.0}  # seconds
# What is timed: the stage, and the functions that belong to it. Later stages may lie within earlier ones.
STAGES = (
    ("data set", "adabest.runs.settings.resolution:load_dataset"),
    ("build", "adabest.runs.build:build_federation"),
    ("partition", "adabest.runs.build:cut_partition"),
    ("model", "adabest.runs.build:take_model"),
    ("fingerprint", "adabest.data.dataset:Dataset.fingerprint"),
    ("task", "adabest.tasks.classification:ClassificationTask.__init__"),
    ("trainer", "adabest.engine.gpu.trainer:GpuTrainer.__init__"),
    ("capture", "adabest.engine.gpu.program:Program._capture"),
    ("compile", "adabest.engine.gpu.kernels.launches:compile_together"),
    ("data to the device", "adabest.tasks.classification:on_device"),
    ("tables", "adabest.engine.gpu.trainer:GpuTrainer._cohort"),
    ("waiting for Triton", "adabest.engine.gpu.kernels.compiler:wait_until_loaded"),
)
_PATIENCE = 300.0  # seconds until the first round must have come


class Stopwatch:
    """The seconds of stages in a child process, written to a file when each ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._within: list[float] = []  # of the stages that are open, the seconds of stages within them

    def time(self, stage: str, work: Callable[[], Any]) -> Any:
        """Does some work as a stage."""
        begun = time.monotonic()
        self._within.append(0.0)
        try:
            return work()
        finally:
            now = time.monotonic()
            own = now - begun - self._within.pop()
            if self._within:
                self._within[-1] += now - begun
            self.write(stage, own, now)

    def write(self, stage: str, seconds: float, now: float) -> None:
        """Writes a stage down."""
        with self._path.open("a") as file:
            file.write(json.dumps([stage, seconds, now]) + "\n")

    def patch(self, stage: str, target: str) -> None:
        """Makes a function or method a stage; one that isn't there any more is left out."""
        module, _, path = target.partition(":")
        *parents, name = path.split(".")
        owner: Any = importlib.import_module(module)
        for parent in parents:
            owner = getattr(owner, parent)
        plain = getattr(owner, name, None)
        if plain is not None:
            setattr(owner, name, lambda *given, **named: self.time(stage, lambda: plain(*given, **named)))


def child(path: str, begun: str, words: Sequence[str]) -> None:
    """What a timed process does."""
    watch, now = Stopwatch(Path(path)), time.monotonic()
    watch.write("Python", now - float(begun), now)
    torch = watch.time("import torch", lambda: importlib.import_module("torch"))
    on_gpu = "cuda" in words
    stages = [(stage, target) for stage, target in STAGES if on_gpu or "kernels" not in target]
    for stage, target in stages:
        watch.time("import adabest", functools.partial(watch.patch, stage, target))
    cli = watch.time("import adabest", lambda: importlib.import_module("adabest.cli"))
    view = importlib.import_module("adabest.runs.callbacks.base").RunView
    plain = view.round_done

    def round_done(run: Any) -> None:
        if on_gpu:
            torch.cuda.synchronize()
        watch.write(ROUND, 0.0, time.monotonic())
        plain(run)

    view.round_done = round_done
    cli.main(list(words))


def start(dataset: str, device: str, cache: Path, folder: Path) -> dict[str, float]:
    """The seconds of the stages of one start, and of the whole."""
    run, stamps = folder / "run", folder / "stages.jsonl"
    precision = [] if device == "cpu" else ["--precision", "bf16"]
    words = [
        *("run", "--dataset", dataset, "--model", "cnn", "--augmentation", "flip-crop"),
        *("--partition", "dirichlet-legacy", "--clients", "100", "--participation", "0.1"),
        *("--device", device, *precision, "--rounds", "10000", "--evaluate-every", "10000", "--out", str(run)),
    ]  # fmt: skip
    begun = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.gpu_starts", "--child", str(stamps), str(begun), *words]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    with (folder / "errors.txt").open("w") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        while not (stamps.is_file() and f'["{ROUND}"' in stamps.read_text()):
            assert process.poll() is None, (folder / "errors.txt").read_text()
            assert time.monotonic() - begun < _PATIENCE, "the first round doesn't come"
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()
    stages: dict[str, float] = {}
    rows = [json.loads(line) for line in stamps.read_text().splitlines()]
    ended = next(now for stage, _, now in rows if stage == ROUND)
    for stage, seconds, now in rows:
        if now <= ended and stage != ROUND:
            stages[stage] = stages.get(stage, 0.0) + seconds
    return {**stages, REST: ended - begun - sum(stages.values()), TOTAL: ended - begun}


def measure(dataset: str, device: str, repeats: int, say: Callable[[str], None]) -> dict[str, dict[str, list[float]]]:
    """The seconds of each stage in all repeats, by the state of the cache."""
    found: dict[str, dict[str, list[float]]] = {state: {} for state in LIMITS}
    for number in range(repeats):
        with tempfile.TemporaryDirectory() as place:
            cache = Path(place) / "kernels"
            for state in LIMITS:
                folder = Path(place) / state.replace(" ", "-")
                folder.mkdir()
                seconds = start(dataset, device, cache, folder)
                say(f"repeat {number + 1} of {repeats}, {state}: {seconds[TOTAL]:.1f} s")
                for stage, value in seconds.items():
                    found[state].setdefault(stage, []).append(value)
    return found


def table(found: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """The medians, and the limits of the whole."""
    stages = list(dict.fromkeys(stage for seconds in found.values() for stage in seconds))
    stages = [stage for stage in stages if stage not in (REST, TOTAL)] + [REST, TOTAL]
    lines = ["| stage | " + " | ".join(found) + " |", "| --- |" + " ---: |" * len(found)]
    for stage in stages:
        cells = [f"{statistics.median(seconds.get(stage, [0.0])):.2f} s" for seconds in found.values()]
        lines.append(f"| {stage} | " + " | ".join(cells) + " |")
    lines.append("| limit | " + " | ".join(f"{LIMITS[state]:g} s" for state in found) + " |")
    return "\n".join(lines)


def write_images(path: Path, samples: int) -> None:
    """Random images like CIFAR-10's, as a file for ``--dataset``."""
    import numpy as np

    generator = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for split, count in (("train", samples), ("test", samples // 5)):
        arrays[f"x_{split}"] = generator.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
        arrays[f"y_{split}"] = generator.integers(0, 10, count)
    np.savez(path, **arrays)


def main(words: Sequence[str] | None = None) -> int:
    """Parses, measures, prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_starts", description=__doc__)
    parser.add_argument("--repeats", type=int, default=2, help="how often everything is measured")
    parser.add_argument("--device", default="cuda", help="where the run trains")
    parser.add_argument("--data", choices=("arrays", "synthetic"), nargs="+", default=["arrays", "synthetic"])
    parser.add_argument("--samples", type=int, default=50_000, help="training samples")
    parser.add_argument("--out", type=Path, help="the JSON file to write")
    arguments = parser.parse_args(words)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images.npz"
        write_images(images, arguments.samples)
        for data in arguments.data:
            dataset = str(images)
            if data == "synthetic":
                dataset = f"synthetic,samples={arguments.samples},test={arguments.samples // 5}"
            own = measure(dataset, arguments.device, arguments.repeats, lambda text: print(text, file=sys.stderr))
            found[data] = own
            print(f"\n{data}, {os.cpu_count()} cores\n\n{table(own)}", flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], sys.argv[4:])
        sys.exit(0)
    sys.exit(main())
