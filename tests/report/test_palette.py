"""One palette: what it gives, and that nothing else names a colour."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import adabest
from adabest.algorithms.catalog import CORE
from adabest.report import line_looks
from adabest.report.line_looks import looks_by_algorithm
from adabest.report.palette import LINE_COLOURS, LINE_DASHES, style_variables

SOURCE = Path(adabest.__file__).parent


def test_only_the_palette_names_colours() -> None:
    naming = {path.name for path in SOURCE.rglob("*.py") if re.search(r"#[0-9a-fA-F]{6}\b", path.read_text("utf-8"))}
    assert naming == {"palette.py"}
    style = (SOURCE / "report" / "page" / "page.css").read_text("utf-8")
    assert not re.search(r"--(line|heat)-\w+:", style)


def test_lines_differ_in_print_and_on_the_screen() -> None:
    for looks in ([c.light for c in LINE_COLOURS], [c.dark for c in LINE_COLOURS], [d.svg for d in LINE_DASHES]):
        assert len(set(looks)) == len(looks)
    assert len({str(dashes.matplotlib) for dashes in LINE_DASHES}) == len(LINE_DASHES)


def seen(colour: str, eyes: str) -> np.ndarray:
    """A colour in OKLab, as eyes of some kind see it (the matrices are those of Machado, Oliveira and Fernandes)."""
    channels = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    cones = _TO_CONES @ np.clip(_EYES[eyes] @ linear, 0, 1)
    lab: np.ndarray = _TO_LAB @ np.cbrt(np.clip(cones, 0, None))
    return lab


_EYES = {
    "usual": np.eye(3),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
}
_TO_CONES = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
_TO_LAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])


@pytest.mark.parametrize("eyes", list(_EYES))
@pytest.mark.parametrize("ground", ["light", "dark"])
def test_colours_are_told_apart_by_all_eyes(eyes: str, ground: str) -> None:
    colours = [getattr(colour, ground) for colour in LINE_COLOURS]
    assert len(colours) >= 12
    for (first, one), (second, other) in itertools.combinations(enumerate(colours), 2):
        distance = float(np.linalg.norm(seen(one, eyes) - seen(other, eyes)))
        same_dashes = first % len(LINE_DASHES) == second % len(LINE_DASHES)
        assert distance > (0.06 if same_dashes else 0.015), (one, other)
        if eyes == "usual":
            assert distance > 0.08, (one, other)


def test_a_built_in_algorithm_has_one_colour_in_every_comparison() -> None:
    assert set(CORE) == set(line_looks._BUILT_IN)
    assert len(set(line_looks._BUILT_IN.values())) == len(CORE)
    assert looks_by_algorithm(["fedavg", "fedprox", "scaffold", "feddyn", "adabest"]) == [0, 1, 2, 3, 4]
    assert looks_by_algorithm(["adabest", "mine:Own", "fedavg"])[::2] == [4, 0]


def test_an_algorithm_of_ones_own_keeps_its_colour() -> None:
    (alone,) = looks_by_algorithm(["mine:Own"])
    assert alone not in line_looks._BUILT_IN.values()
    assert looks_by_algorithm(["fedavg", "adabest", "mine:Own", "adabest"])[2] == alone
    assert len({looks_by_algorithm([f"mine:Own{number}"])[0] for number in range(20)}) > 3  # the hash counts
    assert looks_by_algorithm(["b", "a", "c"]) == looks_by_algorithm(["c", "a", "b"])[::-1]  # whatever their order


@pytest.mark.parametrize("names", [["adabest"] * 14, [f"mine:Own{number}" for number in range(14)]])
def test_fourteen_entries_have_fourteen_colours(names: list[str]) -> None:
    assert len({look % len(LINE_COLOURS) for look in looks_by_algorithm(names)}) == 14
    assert len(set(looks_by_algorithm(names * 5))) == 70
    assert len(looks_by_algorithm(names * 10)) == 140  # more than there are looks


def test_a_page_gets_each_colour_for_light_and_for_dark_grounds() -> None:
    assert "--line-2: light-dark(#0072B2, #56b4e9);" in style_variables()
    assert "--heat-low: light-dark(#f2f5f8, #1d232c);" in style_variables()
