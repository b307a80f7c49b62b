"""Which look the line of each entry has: an algorithm's colour is the same in every comparison.

A look is a number n: its colour is ``LINE_COLOURS[n % 14]``, its dashes are ``LINE_DASHES[n % 5]``.
"""

import itertools
import math
import zlib
from collections.abc import Iterable, Sequence

from adabest.report.palette import BLACK, BLUE, GREY, LINE_COLOURS, LINE_DASHES, NAVY, ORANGE, PERIWINKLE, VERMILION

# Algorithms that aren't here get theirs from their names, as those of users do.
_BUILT_IN = {
    "fedavg": LINE_COLOURS.index(BLACK),
    "fedprox": LINE_COLOURS.index(GREY),
    "scaffold": LINE_COLOURS.index(BLUE),
    "scaffold-m": LINE_COLOURS.index(PERIWINKLE),
    "scaffold-gradient": LINE_COLOURS.index(NAVY),
    "feddyn": LINE_COLOURS.index(ORANGE),
    "adabest": LINE_COLOURS.index(VERMILION),
}
_REMAINING = [number for number in range(len(LINE_COLOURS)) if number not in _BUILT_IN.values()]
LOOKS = math.lcm(len(LINE_COLOURS), len(LINE_DASHES))


def looks_by_algorithm(algorithms: Sequence[str]) -> list[int]:
    """The look of each entry of a comparison, given the entries' algorithms.

    The first entry of an algorithm has the algorithm's own colour: one from a table for built-in algorithms, one by a
    hash of the name for others. Two others that hash to one colour are told apart by the order of their names.
    Further entries of an algorithm get colours that nobody has. From the fifteenth entry on colours come again, with
    other dashes.
    """
    own: dict[str, int] = {}
    for name in sorted(set(algorithms), key=lambda name: (name not in _BUILT_IN, name)):
        start = zlib.crc32(name.encode()) % len(_REMAINING)
        wished = [_BUILT_IN[name]] if name in _BUILT_IN else [*_REMAINING[start:], *_REMAINING[:start]]
        own[name] = _first_free([*wished, *_in_turn()], own.values())
    found: list[int] = []
    taken = set(own.values())
    for place, name in enumerate(algorithms):
        first = name not in algorithms[:place]
        look = own[name] if first else _first_free(_in_turn(), taken)
        found.append(look)
        taken.add(look)
    return found


def looks_by_cell(algorithms: Sequence[str], cells: Sequence[str]) -> list[int]:
    """The look of each entry, where entries are compared within cells.

    Each cell is a comparison of its own, so an algorithm has its colour in every cell. Its dashes differ from cell to
    cell.
    """
    names = list(dict.fromkeys(cells))
    looks = [0] * len(cells)
    for number, cell in enumerate(names):
        places = [place for place, other in enumerate(cells) if other == cell]
        for place, look in zip(places, looks_by_algorithm([algorithms[place] for place in places]), strict=True):
            looks[place] = (look + number * len(LINE_COLOURS)) % LOOKS
    return looks


def _in_turn() -> Iterable[int]:
    """All looks: those of colours that no algorithm owns, those that one does, and then those with other dashes."""
    return [*_REMAINING, *_BUILT_IN.values(), *range(len(LINE_COLOURS), LOOKS)]


def _first_free(wished: Iterable[int], taken: Iterable[int]) -> int:
    """The first look that isn't taken; if all are, another number for one of them."""
    used = set(taken)
    return next(look for look in itertools.chain(wished, itertools.count(LOOKS)) if look not in used)
