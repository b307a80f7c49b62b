"""The page of results on several ranks, written from the JSON file alone."""

import json
import statistics
from collections.abc import Sequence
from typing import Any

from adabest.report.table import Table
from benchmarks import machine
from benchmarks.measures import short
from benchmarks.rank_arithmetic import LINKS

Row = dict[str, Any]

_ARMS = {"alone": "no ranks", "1": "1 rank", "2": "2 ranks", "4": "4 ranks", "8": "8 ranks"}
_RULES = {"balanced": "as it is", "home": "always at home"}
_SETTINGS = (("nvlink", 8), ("infiniband", 8), ("ethernet", 8), ("infiniband", 64), ("shared-ethernet", 64))
_WHERE = {
    ("nvlink", 8): "8 GPUs of a node",
    ("infiniband", 8): "8 nodes of 1 GPU",
    ("ethernet", 8): "8 nodes of 1 GPU",
    ("infiniband", 64): "8 nodes of 8 GPUs",
    ("shared-ethernet", 64): "8 nodes of 8 GPUs",
}


def page(found: Row) -> str:
    """The page."""
    rates = found["rates"]["run"]
    made = found["arithmetic"]
    jobs = list(dict.fromkeys(row["job"] for row in made["rounds"]))
    parts = [
        _INTRODUCTION,
        "## On two cores\n",
        *_commands(found),
        _MEASURED,
        jobs_table(found["jobs"]).markdown(),
        _BYTES,
        bytes_table(found["jobs"]).markdown(),
        _overhead(found),
        "## Where clients train\n",
        _PLACEMENT,
        placement_table(made["placement"]).markdown(),
        _MOVING,
        moving_table(made["placement"]).markdown(),
        _CHOICE,
        measured_placement_table(found["placement"]).markdown(),
        _placement_words(found["placement"]),
        "## Many GPUs, by arithmetic\n",
        _arithmetic_words(found),
        _source("Rates", rates),
        _source("Orders and answers", found["control"]["run"]),
        rates_table(found["rates"]["microseconds"]).markdown(),
        links_table().markdown(),
    ]
    for job in jobs:
        parts += [f"### {job[0].upper()}{job[1:]}\n", scaling_table(made["rounds"], job).markdown()]
        parts += [settings_table(made["rounds"], job).markdown()]
    parts += ["### Where it stops\n", _STOPS, stops_table(made["stops"]).markdown(), _after(made)]
    return "\n".join(parts)


def _commands(found: Row) -> list[str]:
    """The machine and the command of everything that was measured."""
    rows = [*found["jobs"].values(), *found["placement"].values()]
    runs = {json.dumps(row["run"], sort_keys=True): row["run"] for row in rows}
    return [
        f"{machine.words(run)}; other programs ran at the same time. Commit {run['commit']}, {run['date']}:\n\n"
        f"<!-- not run: it takes long -->\n```sh\n{run['command']}\n```\n"
        for run in runs.values()
    ]


def _source(what: str, run: Row) -> str:
    return f"{what}: {machine.words(run)}. Commit {run['commit']}, {run['date']}. By {run['command']}.\n"


def jobs_table(jobs: Row) -> Table:
    """Seconds and CPU time of rounds."""
    rows = []
    for job in jobs.values():
        for arm, row in job["arms"].items():
            rows.append(
                (
                    f"{job['name']}, {_ARMS[arm]}",
                    _ms(row["seconds"]),
                    f"{row['seconds_ratio']:.2f}",
                    _ms(row["cpu"]),
                    f"{row['cpu_ratio']:.2f}",
                    _ms(row["exchange"]) if row.get("exchange") else "–",
                )
            )
    head = ("job", "ms a round", "times no ranks", "CPU ms a round, all ranks", "times no ranks", "ms in exchanges")
    return Table(head, tuple(rows))


def bytes_table(jobs: Row) -> Table:
    """What ranks send, a round."""
    rows = []
    for job in jobs.values():
        for arm, row in job["arms"].items():
            if arm in ("alone", "1"):
                continue
            rows.append(
                (
                    f"{job['name']}, {_ARMS[arm]}",
                    f"{job['parameters']:,}",
                    f"{row['sent'][0]:,.0f}",
                    f"{statistics.mean(row['sent'][1:]):,.0f}",
                    f"{row['received'][0]:,.0f}",
                    f"{statistics.mean(row['received'][1:]):,.0f}",
                    f"{row['moved']:.2f}",
                    f"{row['text']:,.0f}",
                )
            )
    head = ("job", "P", "rank 0 sends", "another sends", "rank 0 receives", "another receives", "states moved", "text")
    return Table(head, tuple(rows))


def placement_table(placed: Sequence[Row]) -> Table:
    """Both rules in steps and states."""
    rows = []
    for one, other in zip(placed[::2], placed[1::2], strict=True):
        rows.append(
            (
                f"{one['cohort']}, {_spread(one)}",
                str(one["ranks"]),
                f"{one['share']:,.0f}",
                f"{one['makespan']:,.0f}",
                f"{other['makespan']:,.0f}",
                f"{other['makespan'] / one['makespan']:.2f}",
                f"{one['moved']:.1f}",
            )
        )
    head = ("clients a round", "ranks", "mean share", "most steps", "at home", "times", "states moved")
    return Table(head, tuple(rows))


def moving_table(placed: Sequence[Row]) -> Table:
    """What moving costs on GPUs, against what it saves."""
    rows = []
    links = ("nvlink", "infiniband", "ethernet")
    for job in placed[0]["training"]:
        for one, other in zip(placed[::2], placed[1::2], strict=True):
            if one["ranks"] == 8:
                saved = other["training"][job] - one["training"][job]
                costs = (_ms(one["moving"][job][link]) for link in links)
                rows.append((f"{job}: {one['cohort']}, {_spread(one)}", _ms(saved), *costs))
    head = ("clients a round, 8 ranks", "ms saved", "ms of moving: NVLink", "InfiniBand", "Ethernet, 25 Gb/s")
    return Table(head, tuple(rows))


def measured_placement_table(placed: Row) -> Table:
    """Both rules on two ranks, measured."""
    rows = []
    for job in placed.values():
        for rule, row in job["arms"].items():
            rows.append(
                (
                    f"{job['name']}, {_RULES[rule]}",
                    _ms(row["seconds"]),
                    f"{row['seconds_ratio']:.2f}",
                    f"{row['most_clients']:.1f}",
                    f"{row['moved']:.1f}",
                )
            )
    return Table(("2 ranks", "ms a round", "times as it is", "most clients at a rank", "states moved"), tuple(rows))


def rates_table(rates: Row) -> Table:
    """Microseconds a client-step, by the number of clients side by side."""
    sizes = sorted({int(size) for own in rates.values() for size in own})
    names = {"cnn": "the paper's CNN"}
    rows = [
        (names.get(model, f"`{model}`"), *(short(own[str(size)]) if str(size) in own else "–" for size in sizes))
        for model, own in rates.items()
    ]
    return Table(("µs a client-step, clients side by side:", *map(str, sizes)), tuple(rows))


def links_table() -> Table:
    """What is reckoned with."""
    rows = [
        (link.name, f"{link.bandwidth / 1e9:.3g}", f"{100 * link.efficiency:.0f} %", f"{link.latency * 1e6:.0f}")
        for link in LINKS.values()
    ]
    return Table(("link", "GB/s reckoned with", "of the nominal", "µs an operation"), tuple(rows))


def scaling_table(rounds: Sequence[Row], job: str) -> Table:
    """Milliseconds and efficiency by ranks, for each link."""
    sizes = sorted({row["ranks"] for row in rounds})
    rows = []
    for key, link in LINKS.items():
        own = {row["ranks"]: row for row in rounds if row["job"] == job and row["link"] == key}
        cells = (f"{_ms(own[size]['seconds'])} ({100 * own[size]['efficiency']:.0f} %)" for size in sizes)
        rows.append((link.name, *cells))
    return Table(("ms a round (efficiency), ranks:", *map(str, sizes)), tuple(rows))


def settings_table(rounds: Sequence[Row], job: str) -> Table:
    """What a round is made of, at 8 ranks and 64."""
    rows = []
    for key, size in _SETTINGS:
        (row,) = (r for r in rounds if (r["job"], r["link"], r["ranks"]) == (job, key, size))
        parts = (_ms(row[name]) for name in ("training", "exchange", "moving", "fixed", "seconds"))
        times = f"{row['efficiency'] * size:.1f}"
        rows.append((f"{_WHERE[key, size]}, {LINKS[key].name.partition(',')[0]}", *parts, times))
    head = ("ms a round", "training", "exchange", "moving", "fixed", "together", "times one GPU")
    return Table(head, tuple(rows))


def stops_table(stops: Sequence[Row]) -> Table:
    """The most ranks that are at least half used."""
    jobs = list(dict.fromkeys(row["job"] for row in stops))
    rows = []
    for key, link in LINKS.items():
        own = {row["job"]: row["ranks"] for row in stops if row["link"] == key}
        rows.append((link.name, *(str(own[job]) for job in jobs)))
    return Table(("link", *jobs), tuple(rows))


def _spread(row: Row) -> str:
    return "balanced" if row["spread"] == 0 else "σ = 1"


def _ms(seconds: float) -> str:
    return short(seconds * 1e3)


def _overhead(found: Row) -> str:
    arms = found["jobs"]["least"]["arms"]
    own = found["control"]["seconds"]
    extra = ", ".join(f"{_ms(own[size] - own['alone'])} with {size}" for size in ("2", "4", "8"))
    return (
        f"The first job is the least that a round can be, so its difference is what ranks cost whatever the model: "
        f"{_ms(arms['1']['seconds'] - arms['alone']['seconds'])} ms with 1 rank, "
        f"{_ms(arms['2']['seconds'] - arms['alone']['seconds'])} ms with 2, "
        f"{_ms(arms['4']['seconds'] - arms['alone']['seconds'])} ms with 4. On a machine of 16 cores it is "
        f"{_ms(own['1'] - own['alone'])} ms with 1, {extra}. It goes into orders and answers: some ten operations a "
        "round, each of which ends when the slowest process has been given a core.\n"
    )


def _placement_words(placed: Row) -> str:
    ratios = [job["arms"]["home"]["seconds_ratio"] for job in placed.values()]
    return (
        f"Training at home takes {min(ratios):.2f} to {max(ratios):.2f} times as long here. Seconds scatter more than "
        "that between repeats, so they decide nothing: the choice rests on the steps and states above, which are "
        "exact, and on the arithmetic.\n"
    )


def _arithmetic_words(found: Row) -> str:
    fixed = found["arithmetic"]["fixed"]
    control = ", ".join(f"{_ms(value)} ms with {size} ranks" for size, value in fixed["control"].items())
    return (
        f"{_ARITHMETIC}\n"
        f"- fixed: {_ms(fixed['alone'])} ms beside the kernels, as in "
        f"[one run of 100 clients](speed.md#whole-jobs), all of which is taken not to get shorter; orders and answers, "
        f"{control}, and as with the last for more; and {_ms(fixed['lateness'])} ms by which a wait ends late, since "
        "waits are polled.\n"
    )


def _after(made: Row) -> str:
    rounds = made["rounds"]
    cnn, large = dict.fromkeys(row["job"] for row in rounds)
    at_8 = {
        job: next(r for r in rounds if (r["job"], r["link"], r["ranks"]) == (job, "nvlink", 8)) for job in (cnn, large)
    }
    small, big = at_8[cnn], at_8[large]
    return (
        f"- **{cnn[0].upper()}{cnn[1:]}** is small for many GPUs: with 100 clients a round, eight GPUs have 13 at "
        f"most, which train at a higher cost a step ({_ms(small['training'])} of {_ms(small['seconds'])} ms), and the "
        f"fixed {_ms(small['fixed'])} ms are the rest. The link hardly counts, unless it is Ethernet. Comparisons and "
        "sweeps have a better use for several GPUs: whole runs on each, with nothing to exchange.\n"
        f"- **{large[0].upper()}{large[1:]}** trains {big['training']:.1f} s a round on eight GPUs, so that fixed "
        "costs vanish. It scales until clients are too few to be shared out evenly, or one link serves a whole node.\n"
        "- More clients a round, more local steps or larger batches move all of these limits up in proportion.\n"
    )


_INTRODUCTION = """\
# Many processes

What it costs to share the clients of a round among [several processes](../how-to/many-processes.md), and how far more
GPUs would help. Results are the same bytes for any number of ranks: every arm below has trained the same model, and
the command checks it. The command that measures writes this page.
"""

_MEASURED = """\
Medians of repeats that go round all arms; ratios are of arms in the same repeat. The cores were busy with other
programs most of the time, so seconds scatter by a factor of two, and a ratio of seconds between .5 and 2 means
little. With two cores of its own, one process without ranks uses both, and more ranks have nothing to gain: what
counts here is the overhead. Milliseconds in exchanges are those of vectors, with the time spent waiting for others.

With the CNN, ranks take less CPU time than one process. That is no gain of ranks: in three pairs of further runs, a
process without ranks took 1.4 to 1.6 s of CPU time a round with `--threads 2`, its default here, and .9 to 1.0 s with
`--threads 1`, as much as ranks, which have one thread each.
"""

_BYTES = """\
Bytes of vectors a round, on average, for 10 clients. In each round and at each rank they were equal to the formula:
messages of 4P bytes go to each other rank; of C replies, each rank sends its own without the slice that it adds up
itself, 4P·(R − 1)/R each; each other rank sends its slice of the mean to rank 0; a state that moves, with AdaBest 4P,
is sent once. Text is orders and answers, all ranks together.
"""

_PLACEMENT = """\
A client trains where its state lies, unless the balance needs it elsewhere; then the state moves there, and stays.
The other way would be that clients always train at home, at the rank of their number modulo the ranks, and no state
ever moves. Local steps a round, by the package's own rule and at home, averaged over 200 rounds, for 1,000 clients of
50 steps on average (σ = 1: lognormal):
"""

_MOVING = """\
What the balance saves on 8 GPUs, against what moving states costs the rank that has the most to send or to receive (3.2
MB each with the paper's CNN, 100 MB with the ResNet):
"""

_CHOICE = """\
So states move. Over NVLink or InfiniBand that costs a small part of what it saves, and an algorithm without states
(FedAvg) pays nothing. It pays as long as a client trains longer than its state travels. The exception is the paper's
CNN over Ethernet of 25 Gb/s: a client trains .9 ms and its state travels 1.3, so there, clients that always train at
home would be better. Such a job isn't worth several machines anyway, as the next section shows, so there is no setting
for it. On two ranks of one machine, measured as above:
"""

_ARITHMETIC = """\
Nobody has tried NCCL across GPUs yet, so nothing below is measured but the parts that it is made of. AdaBest, 100
clients a round, 50 local steps each, batches of 45. A round takes

- training: the clients of the fullest rank, 100/R rounded up, at the rate of so many side by side;
- exchange: the message to every rank (a ring, so each link carries it once), a rank's replies without its own slice,
  the means;
- moving: the states of the rank that has the most to send or to receive;"""

_STOPS = """\
The most ranks before the efficiency (the time on one GPU, over ranks times the time on them) falls under 50 % for the
first time. One rank a client, 100, is the most that there can be. NVLink connects 8 GPUs in most machines; larger
numbers stand here to show what the link's part is.
"""
