"""Where the README's figures beyond one seed come from, and which β the validation clients prefer.

python examples/demo_seeds.py
"""

from pathlib import Path
from statistics import mean

import adabest
from adabest.report.table import Table, rounds_to

SEEDS = (0, 1, 2)
ALGORITHMS = ["fedavg", "fedprox", "scaffold", "feddyn", "adabest,beta=0.6", "adabest,beta=0.8", "adabest,beta=0.9"]
DEMO = Path(__file__).with_name("demo.toml")

comparison = adabest.compare(DEMO, algorithms=ALGORITHMS, seeds=SEEDS, out="runs/demo-seeds")
rows = []
for label, runs in comparison.entries.items():
    validation = mean(100 * run.final["validation_accuracy"] for run in runs)
    test = ", ".join(f"{100 * run.final['scored_accuracy']:.1f}" for run in runs)
    rounds = ", ".join(str(rounds_to(run, 0.95)) for run in runs)
    norms = ", ".join(f"{run.final['cloud_norm']:.1f}" for run in runs)
    rows.append((label, f"{validation:.2f}", test, rounds, norms))
head = ("algorithm", "validation %, mean", "test %", "rounds to 95 %", "‖θ‖")
print(Table(head, tuple(rows)).markdown())
