"""One look for all figures and pages: colours, line styles and markers.

The first colours are those of Okabe and Ito, which colour-blind readers can tell apart. Those that come after them were
chosen to be far from all before, as three kinds of eyes see them. Line styles and markers survive print in grey.
"""

from typing import Any, NamedTuple


class Colour(NamedTuple):
    """A colour in print or on a light ground, and one that is as far from a dark ground as that is from white."""

    light: str
    dark: str


class Dashes(NamedTuple):
    """A line style, as matplotlib and as SVG have it."""

    matplotlib: Any
    svg: str


BLACK = Colour("#000000", "#f4f4f4")
GREY = Colour("#999999", "#9a9a9a")
BLUE = Colour("#0072B2", "#56b4e9")
ORANGE = Colour("#E69F00", "#e69f00")
VERMILION = Colour("#D55E00", "#f0743e")
GREEN = Colour("#009E73", "#1fbf92")
PURPLE = Colour("#CC79A7", "#dd92bb")
YELLOW = Colour("#F0E442", "#f0e442")
INDIGO = Colour("#560499", "#8c51d9")
RASPBERRY = Colour("#b4065f", "#cd2e73")
PINE = Colour("#04510e", "#a3e9a2")
NAVY = Colour("#082f54", "#547aa5")
PLUM = Colour("#735684", "#e6c6fb")
PERIWINKLE = Colour("#6e7ae5", "#7c89f6")
BROWN = Colour("#795f28", "#8e733d")

SOLID = Dashes("-", "none")
DASHED = Dashes("--", "7 4")
DOTTED = Dashes(":", "2 3")
DASH_DOTTED = Dashes("-.", "9 3 2 3")
DASH_DOT_DOTTED = Dashes((0, (5, 1, 1, 1, 1, 1)), "10 3 2 3 2 3")

# Look n has colour n modulo 14 and dashes n modulo 5, so 70 looks differ. Colours that colour-blind readers confuse,
# such as grey and purple, differ in their dashes.
LINE_COLOURS = (
    BLACK,
    GREY,
    BLUE,
    ORANGE,
    VERMILION,
    GREEN,
    INDIGO,
    PURPLE,
    RASPBERRY,
    PINE,
    PERIWINKLE,
    NAVY,
    PLUM,
    BROWN,
)
LINE_DASHES = (DASHED, DOTTED, DASH_DOTTED, DASH_DOT_DOTTED, SOLID)
MARKERS = ("o", "s", "^", "D", "v", "p", "<", ">", "h")

# From few to many samples, in heat maps on a page; in figures it is a colour map of matplotlib.
HEAT = {
    "low": Colour("#f2f5f8", "#1d232c"),
    "middle": Colour("#3f9bd1", "#2a78ad"),
    "high": Colour("#06213d", "#ffe9a8"),
}
HEAT_MAP = "viridis"

# How the end of a line is marked: of a run that diverged, and of one that ended early or isn't finished.
DIVERGED_MARKER, STOPPED_MARKER = "x", "o"


def style_variables() -> str:
    """The colours of lines and heat maps as CSS variables, for light and for dark grounds."""
    named = {f"line-{number}": colour for number, colour in enumerate(LINE_COLOURS)}
    named |= {f"heat-{name}": colour for name, colour in HEAT.items()}
    return " ".join(f"--{name}: light-dark({colour.light}, {colour.dark});" for name, colour in named.items())
