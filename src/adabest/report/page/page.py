"""The text of a page of runs: words and tables are HTML, curves and maps are data for the script beside them."""

import base64
import hashlib
import html
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from importlib.metadata import version
from string import Template
from typing import Any

from adabest.report.entries import common_metric, lacks_its_model, scores_of
from adabest.report.line_looks import looks_by_algorithm, looks_by_cell
from adabest.report.numbers import MISSING, as_text
from adabest.report.page.curves import curves
from adabest.report.page.heat_maps import HeatMap
from adabest.report.page.page_runs import SEEDS, Ending, PageRun, common_and_other, entry_cells
from adabest.report.palette import LINE_COLOURS, LINE_DASHES, style_variables
from adabest.report.table import Table, common_target, comparison_table, sweep_table

_WORDS: dict[Ending, str] = {"diverged": "diverged", "early": "ended early", "unfinished": "unfinished"}
_SYMBOLS: dict[Ending, str] = {"diverged": "×", "early": "●", "unfinished": "○"}
_STATISTICS = {"samples_per_client": "samples per client: least, mean, most"}
_LETTERS = 16  # of a class's name beside a heat map
_LONG = 40  # letters; what is longer has a line of its own
_FINGERPRINT = 12  # of its digits are enough to tell it from others


def page_text(
    entries: Mapping[str, Sequence[PageRun]],
    *,
    title: str,
    maps: Sequence[HeatMap] = (),
    target: float | None = None,
    by_validation: bool = False,
) -> str:
    """A page of runs, complete in itself: it loads nothing, and no script runs in it but its own.

    Args:
        entries: The runs by label, those that differ in their seeds together.
        title: What all of it is about.
        maps: The partitions of the runs.
        target: The accuracy, or value of the task's first metric, whose first round the table tells; by default one
            that all reach.
        by_validation: Whether the table shows validation scores, too, in whose order entries are.
    """
    shown = [one for group in entries.values() for one in group]
    data = {
        "entries": _entries_data(entries),
        "dashes": [dashes.svg for dashes in LINE_DASHES],
        "colours": len(LINE_COLOURS),
        **curves(entries),
        "maps": [_map_data(one) for one in maps],
    }
    script = _asset("page.js")
    return Template(_asset("page.html")).substitute(
        title=_escaped(title),
        heading=_escaped(title.replace(" %", "\u00a0%").replace(" = ", "\u00a0=\u00a0")),  # what isn't to be torn apart
        policy=_policy(script),
        colours=style_variables(),
        style=_asset("page.css"),
        summary=_summary(entries),
        trouble=_trouble(entries),
        filters=_filters(entries),
        table=_table(
            _with_counts(_comparison(entries, target, by_validation), entries), range(len(entries)), swatch=True
        ),
        notes=_notes(entries, by_validation),
        maps=_maps(maps),
        settings=_settings(entries),
        runs=_table(
            _runs(entries), [number for number, group in enumerate(entries.values()) for _ in group], code=(2,)
        ),
        environment=_environment(shown),
        version=_escaped(version("adabest")),
        data=json_for_script(data),
        script=script,
    )


def json_for_script(value: Any) -> str:
    """JSON that can stand in a script element, whatever words are in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """What browsers may do for the page: show it, and run this script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _entries_data(entries: Mapping[str, Sequence[PageRun]]) -> list[dict[str, Any]]:
    algorithms = [group[0].run.algorithm for group in entries.values()]
    cells = entry_cells(entries)
    looks = looks_by_cell(algorithms, cells) if cells else looks_by_algorithm(algorithms)
    return [
        {"label": label, "runs": len(group), "endings": _endings(group), "look": look, "cell": cell}
        for (label, group), look, cell in zip(entries.items(), looks, cells or [""] * len(entries), strict=True)
    ]


def _filters(entries: Mapping[str, Sequence[PageRun]]) -> str:
    """Where the reader says which entries to see; nothing if there is only one."""
    if len(entries) == 1:
        return ""
    cells = "".join(f"<option>{_escaped(cell)}</option>" for cell in dict.fromkeys(entry_cells(entries)))
    choice = f'<label>Cell <select id="cell"><option value="">all</option>{cells}</select></label>' if cells else ""
    return (
        '<div class="filters" id="filters" role="search"><label>Entries with '
        f'<input type="search" id="words" placeholder="a word or two" autocomplete="off"></label>{choice}'
        '<span id="matching" role="status"></span></div>'
    )


def _with_counts(table: Table, entries: Mapping[str, Sequence[PageRun]]) -> Table:
    """A table of entries with the number of seeds of each in its second column."""
    rows = ((row[0], str(len(entries[row[0]])), *row[1:]) for row in table.rows)
    return Table((table.head[0], "n", *table.head[1:]), tuple(rows), table.title)


def _endings(group: Sequence[PageRun]) -> str:
    """How runs ended, if not all did as planned; in words."""
    counts = Counter(one.ending for one in group)
    if len(group) == 1:
        return "" if group[0].ending == "finished" else group[0].ending_in_words()
    return ", ".join(f"{counts[ending]} of {len(group)} {words}" for ending, words in _WORDS.items() if counts[ending])


def _summary(entries: Mapping[str, Sequence[PageRun]]) -> str:
    """What there is to see, in a line."""
    shown = [one for group in entries.values() for one in group]
    common, _ = common_and_other([one.settings for one in shown])
    facts = [_count(len(entries), "entry", "entries"), _count(len(shown), "run", "runs")]
    facts += [f"{common[name]} {words}" for name, words in (("model", ""), ("rounds", "rounds")) if name in common]
    return "".join(f"<li>{_escaped(fact)}</li>" for fact in facts)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _trouble(entries: Mapping[str, Sequence[PageRun]]) -> str:
    """Runs that didn't end as planned, each with how it did."""
    lines = [
        f"<li><b>{_escaped(_name(label, one, group))}</b> {_badge(one)} {_escaped(one.ending_in_words())}</li>"
        for label, group in entries.items()
        for one in group
        if one.ending != "finished"
    ]
    if not lines:
        return ""
    total = sum(map(len, entries.values()))
    words = f"{len(lines)} of {_count(total, 'run', 'runs')} didn’t end as planned"
    return f'<details class="trouble" open><summary>{words}</summary><ul>{"".join(lines)}</ul></details>'


def _name(label: str, one: PageRun, group: Sequence[PageRun]) -> str:
    return label if len(group) == 1 else f"{label}, seed {one.settings['seed']}"


def _badge(one: PageRun) -> str:
    if one.ending == "finished":
        return ""
    return f'<span class="badge {one.ending}">{_SYMBOLS[one.ending]} {_WORDS[one.ending]}</span>'


def _comparison(entries: Mapping[str, Sequence[PageRun]], target: float | None, by_validation: bool) -> Table:
    runs = {label: [one.run for one in group] for label, group in entries.items()}
    if target is None:  # one that all reach, of those that came far enough to reach any
        everyone = [run for group in runs.values() for run in group if run.final]
        target = common_target([run for run in everyone if run.status != "diverged"] or everyone)
    return (sweep_table if by_validation else comparison_table)(runs, target)


def _notes(entries: Mapping[str, Sequence[PageRun]], by_validation: bool) -> str:
    runs = [one.run for group in entries.values() for one in group]
    told, metric = scores_of(runs), common_metric(runs)
    words = metric.words[0].upper() + metric.words[1:]
    better = "" if metric.higher_is_better else "; lower is better"
    notes = [f"{words} is that of the {' or '.join(told)} model on the test set in the last evaluated round{better}."]
    without = [label for label, group in entries.items() if any(lacks_its_model(one.run) for one in group)]
    if without and told == ["scored"]:
        notes.append(
            f"{_escaped(', '.join(without))}: no scored model, since clients’ models can’t be told from their replies; "
            f"validation {metric.words} is that of the aggregate then."
        )
    elif without:
        notes.append(f"{_escaped(', '.join(without))}: the run has no such model.")
    if any(len(group) > 1 for group in entries.values()):
        notes.append(
            "Runs that differ only in their seeds are taken together: n of them, mean ± standard deviation (n − 1)."
        )
    if by_validation:
        notes.append(f"Entries are in the order of validation {metric.words}, by which hyper-parameters are chosen.")
    return " ".join(notes)


def _maps(maps: Sequence[HeatMap]) -> str:
    if not maps:
        return "<p>No run has come far enough to have a partition.</p>"
    names = [_map_name(one, maps) for one in maps]
    options = "".join(f'<option value="{number}">{_escaped(name)}</option>' for number, name in enumerate(names))
    choice = f'<label class="choice">Partition <select id="partition">{options}</select></label>'
    return (choice if len(maps) > 1 else "") + "".join(_map(number, one) for number, one in enumerate(maps))


def _map_name(one: HeatMap, maps: Sequence[HeatMap]) -> str:
    """What tells a partition from the others, as far as its settings do."""
    names = ("dataset", "clients", "partition", "alpha", "shards", "unbalance", "partition_seed")
    _, other = common_and_other([{name: m.settings.get(name) for name in names} for m in maps])
    words = [f"{name.replace('_', ' ')} {as_text(one.settings[name])}" for name in other if name in one.settings]
    return ", ".join(words) or str(one.settings.get("partition"))


def _map_data(one: HeatMap) -> dict[str, Any]:
    return {"counts": one.counts, "heldOut": one.held_out, "clients": one.clients, "names": list(one.names)}


def _class_name(one: HeatMap, number: int) -> str:
    """A class's name, cut to the room beside a map, or its number."""
    name = one.names[number] if one.names else str(number)
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"


def _map(number: int, one: HeatMap) -> str:
    facts = _facts(_statistics(one.statistics))
    picture = f'<p class="absent">The heat map of this partition can’t be shown: {_escaped(one.why)}.</p>'
    if one.counts is not None:
        classes = len(one.counts)
        ticks = range(classes) if classes <= 20 else (0, classes - 1)
        labels = "".join(f"<span>{_escaped(_class_name(one, tick))}</span>" for tick in ticks)
        columns = "one column per client" if one.clients == 1 else f"one column per {one.clients} clients, their mean"
        rows, cells = "one row per class", "Samples of each class that each client has"
        order = ", sorted by largest class"
        if classes == 1:  # samples without one label each
            rows, cells, order, labels = "numbers of samples", "Samples that each client has", "", ""
        picture = (
            f'<div class="map"><div class="ticks" aria-hidden="true">{labels}</div>'
            f'<canvas class="cells" role="img" aria-label="{cells}"></canvas>'
            f'<canvas class="roles" aria-hidden="true"></canvas></div>'
            f'<p class="key"><span>{rows}, {columns}{order}</span>'
            f'<span class="ramp"><span>0</span><canvas aria-hidden="true"></canvas><span class="most"></span> samples'
            f'</span><span class="role"><i></i> validation client</span></p><p class="readout" aria-live="polite"></p>'
        )
    hidden = " hidden" if number else ""
    who = _escaped(f"Runs on it: {', '.join(one.labels)}")
    return f'<figure class="partition"{hidden}>{picture}<figcaption>{who}</figcaption>{facts}</figure>'


def _statistics(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics of a partition as they are read; its fingerprint comes last."""
    named = {_STATISTICS.get(name, name): value for name, value in statistics.items() if name != "fingerprint"}
    return {**named, "fingerprint": str(statistics["fingerprint"])[:_FINGERPRINT]}


def _settings(entries: Mapping[str, Sequence[PageRun]]) -> str:
    """What is the same for all runs, and what isn't."""
    shown = [one for group in entries.values() for one in group]
    common, other = common_and_other([{**one.settings, **one.execution} for one in shown])
    parts = [f"<h3>The same for all</h3>{_facts(common)}"]
    if other:
        rows = []
        for label, group in entries.items():
            values = [_each_once(({**one.settings, **one.execution}).get(name) for one in group) for name in other]
            rows.append((label, *values))
        head = ("entry", *(name.replace("_", " ") for name in other))
        parts.append(f"<h3>Different</h3>{_table(Table(head, tuple(rows)), range(len(rows)), swatch=True)}")
    return "".join(parts)


def _each_once(values: Iterable[Any]) -> str:
    """Values of the runs of an entry, each once."""
    return ", ".join(dict.fromkeys(MISSING if value is None else as_text(value) for value in values))


def _runs(entries: Mapping[str, Sequence[PageRun]]) -> Table:
    rows = [
        (label, as_text(one.settings[SEEDS[0]]), one.place, one.ending_in_words())
        for label, group in entries.items()
        for one in group
    ]
    return Table(("entry", "seed", "where", "what became of it"), tuple(rows))


def _environment(shown: Sequence[PageRun]) -> str:
    common, other = common_and_other([one.environment for one in shown])
    parts = [_facts(common)]
    if other:
        rows = tuple((one.place, *(_each_once([one.environment.get(name)]) for name in other)) for one in shown)
        head = ("run", *(name.replace("_", " ") for name in other))
        parts.append(f"<h3>Different</h3>{_table(Table(head, rows), code=range(len(head)))}")
    return "".join(parts)


def _facts(facts: Mapping[str, Any]) -> str:
    items = []
    texts = {name: as_text(value) for name, value in facts.items()}
    for name in sorted(texts, key=lambda name: len(texts[name]) > _LONG):
        kind = ' class="long"' if len(texts[name]) > _LONG else ""
        items.append(f"<div{kind}><dt>{_escaped(name.replace('_', ' '))}</dt><dd>{_escaped(texts[name])}</dd></div>")
    return f'<dl class="facts">{"".join(items)}</dl>' if items else "<p>Nothing.</p>"


def _table(table: Table, entries: Sequence[int] = (), *, swatch: bool = False, code: Iterable[int] = ()) -> str:
    """A table in a box of its own: it scrolls if it must, and its rows are cards where the page is narrow.

    Args:
        table: What it says.
        entries: The number of the entry that each row belongs to, for tables of entries.
        swatch: Whether rows show what their entry's line looks like.
        code: The columns that are set like code.
    """
    words = set(code)
    head = "".join(f'<th scope="col">{_escaped(name)}</th>' for name in table.head)
    body = []
    for number, row in enumerate(table.rows):
        mark = ' class="entry"' if swatch else ""
        cells = [f'<th role="rowheader" scope="row"{mark}>{_escaped(row[0])}</th>']
        for column, cell in enumerate(row[1:], start=1):
            kind = ' class="code"' if column in words else ""
            cells.append(f'<td role="cell"{kind} data-name="{_escaped(table.head[column])}">{_escaped(cell)}</td>')
        entry = f' data-entry="{entries[number]}"' if entries else ""
        body.append(f'<tr role="row"{entry}>{"".join(cells)}</tr>')
    lines = f'<thead><tr role="row">{head}</tr></thead><tbody>{"".join(body)}</tbody>'
    # Cards aren't laid out as a table, so browsers would forget that it is one if roles didn't say so.
    return (
        f'<div class="box" tabindex="0"><table role="table">{lines}</table></div>'
        '<p class="hint" hidden>There is more to the right: the table scrolls sideways.</p>'
    )


def _escaped(text: str) -> str:
    return html.escape(text)
