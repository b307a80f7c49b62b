"""AdaBest against the baselines while clients come and go: the table and the figure of docs/results/populations.md.

python examples/changing_populations.py [dataset] [rounds]
"""

import sys
from pathlib import Path
from statistics import mean

import adabest
from adabest.report.figure import save_figure, scenario_figure
from adabest.report.table import Table, rounds_to

DATASET = sys.argv[1] if len(sys.argv) > 1 else "digits"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 200
SEEDS = (0, 1, 2)
TARGET = 0.95
OUT = Path("runs/populations")
ALGORITHMS = ["fedavg", "scaffold", "feddyn", "adabest,beta=0.8"]
# All with 100 training clients, of whom a tenth of those present takes part in a round.
SCENARIOS = {
    "fixed": {},
    "churn 2 %": {"churn": 0.02},
    "churn 10 %": {"churn": 0.1},
    "growing": {"schedule": ["1:leave:20-99", f"{ROUNDS // 4}:join:20-59", f"{ROUNDS // 2}:join:60-99"]},
    "turnover": {"schedule": ["1:leave:50-99", f"{ROUNDS // 2}:leave:0-49", f"{ROUNDS // 2}:join:50-99"]},
}

rows, shown = [], {}
for scenario, changes in SCENARIOS.items():
    comparisons = [
        adabest.compare(
            algorithms=ALGORITHMS,
            dataset=DATASET,
            alpha=0.1,
            participation=0.1,
            rounds=ROUNDS,
            evaluate_every=2,
            seed=seed,
            out=OUT / f"{scenario.replace(' ', '-').replace('%', 'percent')}-{seed}",
            **changes,
        )
        for seed in SEEDS
    ]
    shown[scenario] = comparisons[0].runs
    for label in ALGORITHMS:
        runs = [comparison.runs[label] for comparison in comparisons]
        accuracies = [100 * run.final["scored_accuracy"] for run in runs]
        worst = [100 * min(run.curve("cloud_accuracy")[1][len(run.metrics) // 2 :]) for run in runs]
        rounds = [rounds_to(run, TARGET) for run in runs]
        norms = [run.final["cloud_norm"] for run in runs]
        rows.append(
            (
                f"{scenario}: {label}",
                f"{mean(accuracies):.1f} ({min(accuracies):.1f}–{max(accuracies):.1f})",
                ", ".join("never" if r is None else str(r) for r in rounds),
                f"{mean(worst):.1f}",
                f"{mean(norms):.1f}",
            )
        )
head = ("population: algorithm", "accuracy %", f"rounds to {100 * TARGET:g} %", "lowest cloud %, 2nd half", "‖θ‖")
print(Table(head, tuple(rows)).markdown())
save_figure(scenario_figure(shown), OUT / "figure")
