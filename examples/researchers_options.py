"""Where the tables and the figure of docs/how-to/extras.md come from; about ten minutes.

python examples/researchers_options.py
"""

from statistics import mean

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import adabest
from adabest.report.figure import save_figure
from adabest.report.table import Table

SEEDS = (0, 1, 2)
OUT = "runs/extras"


def compare(name, algorithms, **settings):
    """The runs of each algorithm, one for each seed."""
    done = [adabest.compare(algorithms=algorithms, seed=seed, out=f"{OUT}/{name}-{seed}", **settings) for seed in SEEDS]
    return {label: [comparison.runs[label] for comparison in done] for label in algorithms}


def each(runs, metric, digits, scale=1.0):
    """A metric of the last round, for each seed."""
    return ", ".join(f"{scale * run.final[metric]:.{digits}f}" for run in runs)


decay = compare("decay", ["adabest,beta=0.9", "adabest,beta=0.9,beta_decay=0.9"], learning_rate_decay=1.0, rounds=600)
rows = [
    (
        label,
        each(runs, "scored_accuracy", 1, 100),
        ", ".join(f"{mean(run.curve('h_norm')[1][-10:]):.3f}" for run in runs),
    )
    for label, runs in decay.items()
]
print(Table(("", "accuracy %", "‖h‖, mean over the last 100 rounds"), tuple(rows)).markdown())

figure = Figure(figsize=(6, 3.4), layout="constrained")
FigureCanvasAgg(figure)
axes = figure.subplots()
for (label, runs), colour, style in zip(decay.items(), ("#000000", "#D55E00"), ("--", "-"), strict=True):
    for run in runs:
        axes.semilogy(*run.curve("h_norm"), color=colour, linestyle=style, label=label if run is runs[0] else None)
axes.set(xlabel="round", ylabel="‖h‖", title="digits, constant learning rate, seeds 0, 1 and 2")
axes.grid(alpha=0.3, which="both")
axes.legend(frameon=False)
save_figure(figure, f"{OUT}/beta-decay")

few = ["fedavg", "scaffold", "feddyn", "adabest,beta=0.6", "adabest,beta=0.8"]
rows = [
    (
        label,
        *(
            f"{100 * mean(run.final[f'{model}_accuracy'] for run in runs):.1f}"
            for model in ("averaged", "aggregate", "scored")
        ),
    )
    for label, runs in compare("average", few, average_from=0.5, participation=0.02).items()
]
print(Table(("algorithm", "averaged", "aggregate θ̄", "scored"), tuple(rows)).markdown())

both = ["feddyn", "feddyn,sample_mean=progressive", "scaffold", "scaffold,sample_mean=progressive"]
rows = [
    (label, each(runs, "scored_accuracy", 1, 100), each(runs, "h_norm", 3))
    for label, runs in compare("progressive", both, unbalance=0.6).items()
]
print(Table(("algorithm", "accuracy %", "‖h‖"), tuple(rows)).markdown())
