"""One palette: what it gives, and that nothing else names a colour."""

import re
from pathlib import Path

import adabest
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


def test_a_page_gets_each_colour_for_light_and_for_dark_grounds() -> None:
    assert "--line-2: light-dark(#0072B2, #56b4e9);" in style_variables()
    assert "--heat-low: light-dark(#f2f5f8, #1d232c);" in style_variables()
