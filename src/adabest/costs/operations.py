"""A counter of operations: additions and multiplications of single numbers, in all that torch executes.

The counter stands below torch's Python functions, where each of their many spellings (``a - b``, ``torch.sub``,
``a.sub_(b)``) has become one of few operators, and where compound functions have been taken apart. A mode of
``__torch_function__`` would see the spellings; a subclass of Tensor would miss what is made inside the functions that
are counted. The class below is torch's documented way to stand there, though its module's name begins with an
underscore.

Counted are operators on tensors. What Python computes with its own numbers, as in ``self.mu / 2``, can't be seen.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ADDITION, MULTIPLICATION, COPY = "s", "m", "copy"

# What one element of the result takes: additions and multiplications.
_ELEMENTWISE = {
    "add": (1, 0),
    "sub": (1, 0),
    "rsub": (1, 0),
    "mul": (0, 1),
    "div": (0, 1),
    "reciprocal": (0, 1),
    "addcmul": (1, 1),
    "addcdiv": (1, 1),
    "lerp": (2, 1),
}
# Each of these may multiply by one more number, given under this name.
_MULTIPLIERS = {"add": "alpha", "sub": "alpha", "rsub": "alpha", "addcmul": "value", "addcdiv": "value"}
_SUMS = {"sum", "mean"}
_VIEWS = {
    "alias",
    "detach",
    "expand",
    "lift_fresh",
    "permute",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "t",
    "transpose",
    "unbind",
    "unsqueeze",
    "view",
}
_COPIES = {
    "_to_copy",
    "cat",
    "clone",
    "copy",
    "empty_like",
    "fill",
    "full",
    "full_like",
    "new_zeros",
    "ones_like",
    "scalar_tensor",
    "stack",
    "zero",
    "zeros",
    "zeros_like",
}


class OperationCounter(TorchDispatchMode):
    """While it is entered, it counts; entered again, it goes on.

    Attributes:
        counts: How many operations there were of each kind. ``s`` are additions and subtractions, ``m`` multiplications
            and divisions, both of floating-point numbers; ``copy`` are numbers that were copied, converted or set.
            Whatever else there was stands under torch's own name for it, with the elements of the largest thing that
            took part.
    """

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        result = func(*args, **given)
        self.counts.update(_count(_name(func), args, given, result))
        return result


def _name(operator: Any) -> str:
    """The operator's name without its variant: ``aten::add_.Tensor`` is ``add``."""
    name = str(operator.name()).partition("::")[2].partition(".")[0]
    return name if name.startswith("__") else name.removesuffix("_")


def _count(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> dict[str, int]:
    if name in _VIEWS:
        return {}
    if name in _COPIES:
        return {COPY: _elements(result)}
    # A product of truth values is no multiplication, so only numbers that may have fractions count as such.
    if isinstance(result, Tensor) and result.is_floating_point():
        if name in _ELEMENTWISE:
            additions, multiplications = _ELEMENTWISE[name]
            multiplications += _multiplier(name, args, kwargs) != 1
            return {ADDITION: additions * result.numel(), MULTIPLICATION: multiplications * result.numel()}
        if name in _SUMS:
            return {ADDITION: _elements(args[0]), MULTIPLICATION: result.numel() if name == "mean" else 0}
        if name == "dot":
            return {ADDITION: _elements(args[0]), MULTIPLICATION: _elements(args[0])}
    return {name: max(map(_elements, [*args, *kwargs.values(), result]))}


def _multiplier(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The further factor of an operator; where it may be given by its place, it comes third."""
    if name not in _MULTIPLIERS:
        return 1
    by_place = args[2] if name.endswith(("add", "sub")) and len(args) > 2 else 1
    return kwargs.get(_MULTIPLIERS[name], by_place)


def _elements(value: Any) -> int:
    """The elements of a tensor, or of all tensors of a list."""
    if isinstance(value, Tensor):
        return value.numel()
    return sum(map(_elements, value)) if isinstance(value, list | tuple) else 0
