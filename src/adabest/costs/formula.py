"""Costs as formulas: sums of products of symbols, written like the paper's, and derived from counts.

=========  ==========================================================================
``K``      local steps of a client in a round
``|P|``    clients that take part in a round
``n``      parameters of the model
``g``      the gradient of one mini-batch
``G``      the gradient over all samples of a client (no algorithm of the paper takes one)
``s``      an addition or subtraction of two numbers
``m``      a multiplication or division of two numbers
=========  ==========================================================================
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

Term = tuple[str, ...]
Number = int | Fraction

_LOOPS = ("K", "|P|")  # what products are put together by when a formula is shown
_ORDER = (*_LOOPS, "n", "g", "G", "s", "m")


@dataclass(frozen=True)
class Formula:
    """A sum of products of symbols: with symbols for them, ``K * (g + 2 * n * s)`` is the formula K(g + 2ns).

    Attributes:
        terms: The factor of each product. None is zero, and the symbols of a product are in one order.
    """

    terms: Mapping[Term, Fraction]

    def __add__(self, other: "Formula | Number") -> "Formula":
        return _collect([*self.terms.items(), *_formula(other).terms.items()])

    def __sub__(self, other: "Formula") -> "Formula":
        return self + -1 * other

    def __mul__(self, other: "Formula | Number") -> "Formula":
        pairs = [(a, b) for a in self.terms.items() for b in _formula(other).terms.items()]
        return _collect([(one + two, factor * times) for (one, factor), (two, times) in pairs])

    __radd__, __rmul__ = __add__, __mul__

    def symbols(self) -> set[str]:
        """All symbols in it."""
        return {symbol for term in self.terms for symbol in term}

    def where(self, keep: Callable[[Term], bool]) -> "Formula":
        """The part whose products fit a rule."""
        return Formula({term: factor for term, factor in self.terms.items() if keep(term)})

    def value(self, values: Mapping[str, int]) -> Number:
        """What it comes to; symbols without a value count as one."""
        total = Fraction(0)
        for term, factor in self.terms.items():
            product = factor
            for symbol in term:
                product *= values.get(symbol, 1)
            total += product
        return total.numerator if total.denominator == 1 else total

    def __str__(self) -> str:
        parts = []
        for loop in (*_LOOPS, ""):
            inside = [(term, factor) for term, factor in self.terms.items() if _loop(term) == loop]
            if loop and len(inside) > 1:
                parts.append(f"{loop}({' + '.join(_text(term[1:], factor) for term, factor in inside)})")
            else:
                parts += [_text(term, factor) for term, factor in inside]
        return " + ".join(parts) or "0"


def symbol(name: str) -> Formula:
    """The formula that is just a symbol."""
    return Formula({(name,): Fraction(1)})


def bilinear(points: Mapping[tuple[int, int], int], rows: Formula, columns: Formula) -> Formula:
    """The formula a + b x + c y + d x y that goes through four counts.

    Args:
        points: Counts at (x, y) for each of two values of x and two of y.
        rows: What x stands for.
        columns: What y stands for.
    """
    (x0, x1), (y0, y1) = (sorted({point[axis] for point in points}) for axis in (0, 1))
    width, height = x1 - x0, y1 - y0
    corner = points[x0, y0]
    both = Fraction(points[x1, y1] - points[x1, y0] - points[x0, y1] + corner, width * height)
    along = Fraction(points[x1, y0] - corner, width) - both * y0
    across = Fraction(points[x0, y1] - corner, height) - both * x0
    rest = corner - along * x0 - across * y0 - both * x0 * y0
    return both * rows * columns + along * rows + across * columns + rest


def _formula(value: Formula | Number) -> Formula:
    return value if isinstance(value, Formula) else _collect([((), Fraction(value))])


def _collect(products: Iterable[tuple[Term, Fraction]]) -> Formula:
    collected: dict[Term, Fraction] = {}
    for term, factor in products:
        ordered = tuple(sorted(term, key=_rank))
        collected[ordered] = collected.get(ordered, Fraction(0)) + factor
    in_order = sorted(collected.items(), key=lambda pair: _place(pair[0]))
    return Formula({term: factor for term, factor in in_order if factor})


def _rank(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _place(term: Term) -> tuple[bool, list[tuple[int, str]]]:
    """Gradients first, then the others by their symbols, and mere numbers last."""
    return (not {"g", "G"} & set(term), [_rank(name) for name in term] or [(len(_ORDER) + 1, "")])


def _loop(term: Term) -> str:
    return term[0] if term and term[0] in _LOOPS else ""


def _text(term: Term, factor: Fraction) -> str:
    """A product as the paper writes it: 2ns; names of more than a letter are set apart."""
    text = "".join(f" {name}" if len(name) > 1 and name not in _LOOPS else name for name in term).strip()
    return text if factor == 1 and text else f"{_plain(factor)}{text}"


def _plain(factor: Fraction) -> str:
    return str(factor.numerator) if factor.denominator == 1 else f"{float(factor):g}"
