"""The forward pass of a user's module, as engines call it: class scores out, whatever the module gives."""

from typing import Any

from torch import Tensor, nn

from adabest.models.keyed_functions import KeyedDraws, KeyedFunctions


def class_scores(output: Any) -> Any:
    """The class scores in what a model gives: the tensor itself, or the ``logits`` of an output object."""
    return output if isinstance(output, Tensor) else getattr(output, "logits", output)


class SimulatedForward:
    """A forward pass that stands in for a module's own, as its attribute ``forward``.

    An attribute of the object, and not a module around it: names of parameters stay what they are, and so do files.

    Attributes:
        draws: The draws of dropout in functions, if there is some; it is off while the module is evaluated.
    """

    def __init__(self, module: nn.Module, draws: KeyedDraws | None = None) -> None:
        self.draws = draws
        self._module = module
        self._replaced = vars(module).get("forward")  # libraries put functions there, too

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """The module's own pass, and its class scores."""
        if self.draws is None or not self._module.training:
            return class_scores(self._own(*inputs, **options))
        with KeyedFunctions(self.draws):
            return class_scores(self._own(*inputs, **options))

    def _own(self, *inputs: Any, **options: Any) -> Any:
        if self._replaced is not None:
            return self._replaced(*inputs, **options)
        return type(self._module).forward(self._module, *inputs, **options)  # looked up here, so that copies pickle


def why_own_forward(module: nn.Module) -> tuple[str, str] | None:
    """Why a module's forward pass is another than that of its class, which is all that a tracer looks at.

    Returns:
        The reason and what would change it, in words; None if the forward pass is that of its class.
    """
    forward = vars(module).get("forward")
    if forward is None:
        return None
    if isinstance(forward, SimulatedForward) and forward.draws is not None:
        return (
            "its dropout in functions, attention or recurrent layers is keyed for the model as a whole",
            "take layers of nn.Dropout, or none",
        )
    if isinstance(forward, SimulatedForward):
        return "it gives an object with .logits", "let it give the tensor"
    return "its forward pass was replaced", "write it as the method of a class"
