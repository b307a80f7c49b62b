"""Fills in what pages show of results, so that no page can say another number than was measured.

python tools/results.py            writes the blocks of all pages, and the figures in them
python tools/results.py --check    writes nothing, and names what isn't up to date

A block stands between two comments. The first names files of results and what is to be shown of them: a table or a
figure by its name, or ``notes``::

    <!-- generated: results/table1.json comparison -->
    <!-- end -->

Several files are taken together, and * stands for any part of a name. Runs of another experiment may stand beside those
of the first file, in the same cells: ``results/misses-skew.json results/table1.json misses``. Where the same runs make
another experiment, too, it is named before what is to be shown: ``results/fig-stability.json fig-overfitting/final``.
The paper's claims, and accuracies over the entropy of partitions, are of several files that aren't one experiment:
``results/table1/*.json results/fig-scale.json claims/claims``, ``results/table1/*.json entropy/lines``.
"""

import argparse
import dataclasses
import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from adabest.costs.cost_file import MeasuredCosts
from adabest.costs.measured_tables import measured_cost_notes, measured_cost_tables
from adabest.errors import InputError
from adabest.paper.claims import claims_notes, claims_table
from adabest.paper.entropy import entropy_figure, entropy_notes, entropy_points, lines_table, seeds_table
from adabest.paper.rendering import Rendered, figure_name, render
from adabest.runs.results_file import Results

ROOT = Path(__file__).parent.parent
_COSTS = "costs"  # whose file holds measured rounds, and no runs
_IMAGES = "docs/assets/paper"
_BEGIN = "<!-- generated: results/"
_BLOCK = re.compile(r"(?<=<!-- generated: )(results/[^\n]+) (\S+) -->\n(.*?)(?=<!-- end -->)", re.DOTALL)
_SOURCE = "Source"  # of the words that PNG and SVG have for facts about an image

# What those who don't see a figure are told of it.
_WORDS = {
    "agreement": "Test accuracy in the cells of Table 1, ours beside the paper's",
    "curves": "Test accuracy over rounds in the cells of Table 1",
    "entropy": "Test accuracy over the mean entropy of clients' labels, with a line for each algorithm",
    "fig-stability": "Test loss, norm of the cloud model and test accuracy over rounds",
    "fig-overfitting": "Training and test accuracy over rounds",
    "fig-scale": "Test accuracy over rounds: balanced and unbalanced, 1000 and 100 clients",
    "fig-stability-emnist": "Test accuracy and norm of the cloud model over rounds, on an easy task",
    "fig-mu": "Test accuracy and norm of the cloud model over rounds, by μ",
    "fig-beta": "Test accuracy against the share of clients in a round, by β",
    "beta-auto-settings": "Test accuracy against the share of clients in a round, by β, in settings of our own",
    "zoo": "Test accuracy of the cloud and the scored model of every algorithm, the best first",
    "population": "Clients present, test accuracy and norm of the cloud model over rounds, by population",
}


class SourcedRendering(NamedTuple):
    """What results look like.

    Attributes:
        name: The experiment that they are shown as.
        rendered: Its tables, figures and notes.
        source: Where they come from: the files, and a digest of what is in them.
    """

    name: str
    rendered: Rendered
    source: str


def outdated(root: Path, *, write: bool = False) -> list[str]:
    """The pages and figures that aren't what results make of them; with ``write`` they are made so.

    Raises:
        InputError: If a block asks for what there isn't.
    """
    stale = []
    show = functools.cache(functools.partial(_show, root))
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        blocks = list(_BLOCK.finditer(text))
        if len(blocks) != text.count(_BEGIN):
            raise InputError(f"{page.relative_to(root)}: a block of results has no <!-- end -->, or says too little")
        fresh = text
        for block in reversed(blocks):  # so that places before it stay where they are
            files, what = block[1], block[2]
            name, _, part = what.rpartition("/")
            try:
                shown = show(files, name)
                place = _place(root, shown, part) if part in shown.rendered.figures else None
                content = _text(shown, part) if place is None else _image(place, page, part)
            except InputError as error:
                raise InputError(f"{page.relative_to(root)}: {files} {what}: {error}") from error
            fresh = fresh[: block.start(3)] + content + fresh[block.end(3) :]
            if place is not None and _source_of(place) != shown.source:
                stale.append(place)
                if write:
                    _save(shown.rendered.figures[part], place, shown.source)
        if fresh != text:
            stale.append(page)
            if write:
                page.write_text(fresh, encoding="utf-8")
    return sorted({path.relative_to(root).as_posix() for path in stale})


def _show(root: Path, files: str, name: str) -> SourcedRendering:
    """Reads results, and renders them."""
    found = [path for pattern in files.split() for path in sorted(root.glob(pattern)) or [root / pattern]]
    if [path.stem for path in found] == [_COSTS]:
        costs = MeasuredCosts.read(found[0])
        return SourcedRendering(_COSTS, Rendered(measured_cost_tables(costs), {}, measured_cost_notes(costs)), files)
    first, *others = map(Results.read, found)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in found)).hexdigest()[:16]
    if name in _ACROSS:
        return SourcedRendering(name, _ACROSS[name]([first, *others]), f"{files} {digest}")
    name = name or first.experiment
    cells = set(first.cells())
    results = dataclasses.replace(first, runs=list(first.runs))
    for other in others:
        beside = dataclasses.replace(other, runs=[run for run in other.runs if run.cell in cells], tuning=[])
        same = other.experiment == first.experiment
        results = results.merged(other if same else dataclasses.replace(beside, experiment=first.experiment))
    return SourcedRendering(name, render(name, results), f"{files} {digest}")


def _claims(found: Sequence[Results]) -> Rendered:
    """The paper's claims, by all results of each experiment together."""
    by_experiment: dict[str, Results] = {}
    for results in found:
        known = by_experiment.get(results.experiment)
        by_experiment[results.experiment] = results if known is None else known.merged(results)
    return Rendered({"claims": claims_table(list(by_experiment.values()))}, {}, claims_notes())


def _entropy(found: Sequence[Results]) -> Rendered:
    """Accuracy over the entropy of partitions. Runs of one seed in several files all count."""
    points = entropy_points(found)
    tables = {"seeds": seeds_table(points), "lines": lines_table(points)}
    return Rendered(tables, {"entropy": entropy_figure(points)}, entropy_notes())


# What is shown of several files without being one experiment.
_ACROSS: dict[str, Callable[[Sequence[Results]], Rendered]] = {"claims": _claims, "entropy": _entropy}


def _text(shown: SourcedRendering, part: str) -> str:
    """A table or the notes, for a page."""
    if part == "notes":
        return "".join(f"- {note}\n" for note in shown.rendered.notes)
    if part not in shown.rendered.tables:
        known = ", ".join([*shown.rendered.tables, *shown.rendered.figures, "notes"])
        raise InputError(f"{shown.name} has no {part!r}; it has {known}")
    return shown.rendered.tables[part].markdown()


def _place(root: Path, shown: SourcedRendering, part: str) -> Path:
    """Where a figure lies."""
    return root / _IMAGES / f"{figure_name(shown.name, part)}.png"


def _image(place: Path, page: Path, part: str) -> str:
    """A figure, for a page."""
    # The longest: fig-stability-emnist begins like fig-stability.
    known = max((name for name in _WORDS if f"{part}-".startswith(f"{name}-")), key=len)
    return f"![{_WORDS[known]}]({Path(os.path.relpath(place, page.parent)).as_posix()})\n"


def _source_of(place: Path) -> str | None:
    """What a figure says that it was made of; None if there is none, or it lacks one of its forms."""
    if not (place.is_file() and place.with_suffix(".svg").is_file()):
        return None
    with Image.open(place) as image:
        return str(image.info.get(_SOURCE))


def _save(figure: Figure, place: Path, source: str) -> None:
    """Writes a figure as PNG and SVG, the same bytes every time."""
    place.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(place, dpi=150, metadata={_SOURCE: source})
    with matplotlib.rc_context({"svg.hashsalt": place.name}):
        figure.savefig(place.with_suffix(".svg"), metadata={_SOURCE: source, "Date": None})


def main() -> int:
    """Writes or checks all pages of this repository."""
    parser = argparse.ArgumentParser(description="Fills in what pages show of results/*.json.")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if something isn't up to date")
    check = parser.parse_args().check
    try:
        stale = outdated(ROOT, write=not check)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in stale:
        print(f"{name} isn't up to date" if check else f"wrote {name}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
