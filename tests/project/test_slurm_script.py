"""The Slurm script: without Slurm, by programs in its place that do what it would do on one node."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest
from ranked import free_port, plain_environment
from tiny_runs import command

from adabest.runs.files.folder import METRICS

SCRIPT = Path(__file__).parents[2] / "examples" / "slurm.sh"
WORDS = "--model logistic --clients 10 --participation 0.4 --rounds 150 --evaluate-every 5 --threads 1"
SETTINGS = WORDS.split()
LIMIT = 120.0

# What Slurm has, as far as the script uses it: srun starts a program on each node, here on this one.
SRUN = """\
    #!/bin/bash
    echo "srun $*" >> "$NOTES"
    while [ "$1" != torchrun ]; do shift; done
    exec "$@"
"""
SCONTROL = """\
    #!/bin/bash
    echo "scontrol $*" >> "$NOTES"
    if [ "$1" = show ]; then echo localhost; echo node-2; fi
"""
# One process in place of torchrun's, which take longer to start.
ONE_PROCESS = f"""\
    #!/bin/bash
    while [ "$1" != -m ]; do shift; done
    exec {sys.executable} "$@"
"""
TORCHRUN = f"""\
    #!/bin/bash
    exec {sys.executable} -m torch.distributed.run "$@"
"""


class Node:
    """A node whose ``srun``, ``scontrol`` and ``torchrun`` are ours."""

    def __init__(self, folder: Path, torchrun: str, ranks: int) -> None:
        self.folder, self.notes = folder, folder / "notes.txt"
        programs = folder / "programs"
        programs.mkdir()
        for name, text in {"srun": SRUN, "scontrol": SCONTROL, "torchrun": torchrun}.items():
            (programs / name).write_text(dedent(text), encoding="utf-8")
            (programs / name).chmod(0o755)
        self.environment = plain_environment() | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "NOTES": str(self.notes),
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_JOB_NODELIST": "node-[1-2]",
            "RANKS_PER_NODE": str(ranks),
            "RENDEZVOUS_PORT": str(free_port()),
        }
        self.environment.pop("PYTHONWARNINGS")  # torchrun's own

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(SCRIPT), *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def asked(self) -> str:
        return self.notes.read_text(encoding="utf-8")


def wait_for_rows(file: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + LIMIT
    while not (file.exists() and file.stat().st_size):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.01)


def stop_and_go_on(folder: Path, torchrun: str, ranks: int) -> None:
    """Starts the script, asks it to stop, starts it again; the run must be one that was never stopped."""
    node, run = Node(folder, torchrun, ranks), folder / "run"
    first = node.start("run", *SETTINGS)
    wait_for_rows(run / METRICS, first)
    first.send_signal(signal.SIGTERM)
    said, _ = first.communicate(timeout=LIMIT)
    assert first.returncode != 0, said
    assert "scontrol requeue 4711" in node.asked()
    assert "-m adabest run --model logistic" in node.asked()
    rows = (run / METRICS).read_text(encoding="utf-8").count("\n")
    assert 0 < rows < 31, said  # one before the first round, and every fifth of 150
    assert list((run / "checkpoints").iterdir()), said

    second = node.start("run", *SETTINGS)
    said, _ = second.communicate(timeout=LIMIT)
    assert second.returncode == 0, said
    assert "-m adabest resume run" in node.asked()
    assert node.asked().count("scontrol requeue") == 1

    assert command("run", *SETTINGS, "--out", str(folder / "whole")) == 0
    for name in (METRICS, "model.safetensors"):
        assert (run / name).read_bytes() == (folder / "whole" / name).read_bytes(), name


def test_the_script_is_bash() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)


def test_a_job_without_a_folder_is_refused(tmp_path: Path) -> None:
    process = Node(tmp_path, ONE_PROCESS, 1).start()
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 2
    assert "usage: sbatch examples/slurm.sh FOLDER" in said


def test_ranks_meet_at_the_first_node(tmp_path: Path) -> None:
    node = Node(tmp_path, "#!/bin/bash\n", 8)
    process = node.start("run", "--rounds", "3")
    process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert f"--rdzv-endpoint=localhost:{node.environment['RENDEZVOUS_PORT']}" in node.asked()
    assert "--nnodes=1 --nproc-per-node=8 --max-restarts=3" in node.asked()


def test_a_job_that_is_stopped_goes_on_at_its_second_start(tmp_path: Path) -> None:
    stop_and_go_on(tmp_path, ONE_PROCESS, 1)


@pytest.mark.soak
def test_a_job_of_two_ranks_that_is_stopped_goes_on_at_its_second_start(tmp_path: Path) -> None:
    stop_and_go_on(tmp_path, TORCHRUN, 2)
