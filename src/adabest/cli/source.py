"""What the source of a public call says of its arguments, read without importing it.

The calls need torch, matplotlib or sympy, whose import would make their ``--help`` wait for seconds.
"""

import ast
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adabest.cli.parser import help_texts


@dataclass(frozen=True)
class SourceCall:
    """A function as its source has it.

    Attributes:
        help_texts: What its docstring says of each argument.
        defaults: The defaults that are numbers, words, None, or tuples of such.
    """

    help_texts: dict[str, str]
    defaults: dict[str, Any]


def read_call(module: str, function: str) -> SourceCall:
    """A function of one of this package's modules."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None, f"{module} has no source"
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    node = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    plain = node.args.args[len(node.args.args) - len(node.args.defaults) :]
    pairs = zip([*plain, *node.args.kwonlyargs], [*node.args.defaults, *node.args.kw_defaults], strict=True)
    defaults = {
        argument.arg: ast.literal_eval(value) for argument, value in pairs if value is not None and _is_plain(value)
    }
    return SourceCall(help_texts(ast.get_docstring(node)), defaults)


def _is_plain(value: ast.expr) -> bool:
    """Whether a default stands in the source as it is, and isn't the name of a constant."""
    return not any(isinstance(part, ast.Name | ast.Call) for part in ast.walk(value))
