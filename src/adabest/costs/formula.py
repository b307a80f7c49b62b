"""Formulas of costs: sympy expressions that are written like the paper's, and fitted to counts.

=========  ==========================================================================
``K``      local steps of a client in a round
``|P|``    clients that take part in a round
``n``      parameters of the model
``q``      private ones among them, which aren't sent
``g``      the gradient of one mini-batch
``G``      the gradient over all samples of a client (no algorithm of the paper takes one)
``s``      an addition or subtraction of two numbers
``m``      a multiplication or division of two numbers
=========  ==========================================================================

No other module of the package imports sympy, which takes half a second.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy

Number = int | Fraction

_LOOPS = ("K", "|P|")  # products that have one of these are written in brackets behind it
_GRADIENTS = ("g", "G")
_ORDER = (*_LOOPS, "n", "q", *_GRADIENTS, "s", "m")


@dataclass(frozen=True)
class Formula:
    """A sum of products of symbols, such as ``K * (g + 2 * n * s)``, which prints as K(g + 2ns).

    Attributes:
        expression: The sum as sympy has it, expanded, so that equal formulas compare equal.
    """

    expression: Any

    def __add__(self, other: "Formula | Number") -> "Formula":
        return _expanded(self.expression + _expression(other))

    def __sub__(self, other: "Formula | Number") -> "Formula":
        return _expanded(self.expression - _expression(other))

    def __mul__(self, other: "Formula | Number") -> "Formula":
        return _expanded(self.expression * _expression(other))

    __radd__, __rmul__ = __add__, __mul__

    def __bool__(self) -> bool:
        return bool(self.expression != 0)

    def symbols(self) -> set[str]:
        """The names of all symbols."""
        return {symbol.name for symbol in self.expression.free_symbols}

    def with_symbol(self, name: str) -> "Formula":
        """The sum of those products that have a symbol."""
        return Formula(self.expression - self.expression.subs(sympy.Symbol(name), 0))

    def value(self, values: Mapping[str, int]) -> Number:
        """The number that a formula comes to; symbols without a value count as one."""
        total = self.expression.subs({symbol: values.get(symbol.name, 1) for symbol in self.expression.free_symbols})
        return whole_or_fraction(Fraction(int(total.p), int(total.q)))

    def __str__(self) -> str:
        parts = []
        for loop in (*_LOOPS, ""):
            inside = [product for product in _products(self.expression) if product.loop == loop]
            if loop and len(inside) > 1:
                parts.append(f"{loop}({' + '.join(product.text(product.names[1:]) for product in inside)})")
            else:
                parts += [product.text(product.names) for product in inside]
        return " + ".join(parts).replace("+ -", "- ") or "0"


def whole_or_fraction(value: Fraction) -> Number:
    """A number as an int where it is whole."""
    return value.numerator if value.denominator == 1 else value


def symbol(name: str) -> Formula:
    """The formula that is just a symbol."""
    return Formula(sympy.Symbol(name))


def bilinear(points: Mapping[tuple[int, int], Number], rows: Formula, columns: Formula) -> Formula:
    """The formula a + b x + c y + d x y that goes through four counts.

    Args:
        points: Counts at (x, y) for each of two values of x and two of y.
        rows: The symbol for x.
        columns: The symbol for y.
    """
    across, along = (sorted({point[axis] for point in points}) for axis in (0, 1))
    lines = {y: sympy.interpolate([(x, _rational(points[x, y])) for x in across], rows.expression) for y in along}
    return _expanded(sympy.interpolate(list(lines.items()), columns.expression))


@dataclass(frozen=True)
class _Product:
    """One product of a sum: its number, and its symbols in the order in which they are written."""

    factor: Fraction
    names: tuple[str, ...]

    @property
    def loop(self) -> str:
        return self.names[0] if self.names and self.names[0] in _LOOPS else ""

    @property
    def place(self) -> tuple[bool, list[tuple[int, str]]]:
        """The place in a sum: gradients first, then the others by their symbols, and bare numbers last."""
        return not set(_GRADIENTS) & set(self.names), [_rank(name) for name in self.names] or [(len(_ORDER) + 1, "")]

    def text(self, names: Collection[str]) -> str:
        """The product as the paper writes it: 2ns; names of more than a letter are set apart."""
        joined = "".join(f" {name}" if len(name) > 1 and name not in _LOOPS else name for name in names).strip()
        if self.factor == 1 and joined:
            return joined
        number = str(self.factor.numerator) if self.factor.denominator == 1 else f"{float(self.factor):g}"
        return f"{number}{joined}"


def _products(expression: Any) -> list[_Product]:
    """The products of an expanded sum, in the order in which they are written."""
    products = []
    for term, factor in expression.as_coefficients_dict().items():
        powers = term.as_powers_dict() if term.free_symbols else {}
        names = [base.name for base, exponent in powers.items() for _ in range(int(exponent))]
        products.append(_Product(Fraction(int(factor.p), int(factor.q)), tuple(sorted(names, key=_rank))))
    return sorted((product for product in products if product.factor), key=lambda product: product.place)


def _rank(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _expanded(expression: Any) -> Formula:
    return Formula(sympy.expand(expression))


def _expression(value: Formula | Number) -> Any:
    return value.expression if isinstance(value, Formula) else _rational(value)


def _rational(value: Number) -> Any:
    return sympy.Rational(value.numerator, value.denominator)
