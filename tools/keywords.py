"""``python -m tools.keywords``: writes the Python keywords of settings, as editors and type checkers read them.

Keywords of a call that are unpacked from a TypedDict (PEP 692) must stand in a source file. That file is written here,
from the declaration of the settings, and a test compares the two.
"""

import sys
import textwrap
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from adabest.runs.settings.config import (
    BESIDE_SPECIFICATIONS,
    COMPONENTS,
    LAYER_SETTINGS,
    PARTITION_SETTINGS,
    SETTINGS,
)
from adabest.runs.settings.declaration import Setting

FILE = Path(__file__).parents[1] / "src" / "adabest" / "runs" / "keywords.py"
_WIDTH = 120
_HEAD = '''"""The settings as keywords of Python calls: editors complete them, and type checkers check them.

Written by ``python -m tools.keywords`` from ``settings/config.py``; change that, and write this anew.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
'''


def keywords_text() -> str:
    """The text of the module."""
    shared = [name for name in SETTINGS if name != "algorithm"]
    return "\n\n".join(
        [
            _HEAD + _imports(),
            _typed_dict(
                "SharedSettings", "TypedDict, total=False", "The settings of all runs of a comparison.", shared
            ),
            _typed_dict("Settings", "SharedSettings, total=False", "The settings of a run.", ["algorithm"]),
            _typed_dict(
                "PartitionSettings",
                "TypedDict, total=False",
                "The settings that a partition depends on.",
                PARTITION_SETTINGS,
            ),
            _typed_dict(
                "LayerSettings",
                "TypedDict, total=False",
                "The settings on which it depends how a model's layers are computed.",
                LAYER_SETTINGS,
            ),
            _typed_dict(
                "ExecutionSettings",
                "TypedDict, total=False",
                "The settings that may stand beside a specification: how its runs are executed.",
                BESIDE_SPECIFICATIONS,
            ),
            _typed_dict(
                "Objects",
                "TypedDict, total=False",
                "The settings that may be Python objects, as a run that is resumed is given them again.",
                (*COMPONENTS, "metrics"),
            ),
        ]
    )


def _imports() -> str:
    homes: dict[str, list[str]] = {}
    for setting in SETTINGS.values():
        for path in (*setting.meaning.objects, *setting.meaning.elements):
            module, _, name = path.partition(":")
            homes.setdefault(module, []).append(name)
    ordered = sorted(homes, key=lambda module: (module.startswith("adabest"), module))
    lines = [f"    from {module} import {', '.join(sorted(homes[module]))}\n" for module in ordered]
    first_own = next(number for number, module in enumerate(ordered) if module.startswith("adabest"))
    return "".join([*lines[:first_own], "\n", *lines[first_own:]])


def _typed_dict(name: str, bases: str, description: str, names: Iterable[str]) -> str:
    head = f'class {name}({bases}):\n    """{description}"""\n'
    fields = [f"    {key}: {_annotation(SETTINGS[key])}\n{_docstring(SETTINGS[key].meaning.help)}" for key in names]
    return "\n".join([head, *fields])


def _annotation(setting: Setting) -> str:
    objects = [path.partition(":")[2] for path in setting.meaning.objects]
    text = _type_text(setting.type)
    if setting.meaning.elements:
        own = [path.partition(":")[2] for path in setting.meaning.elements]
        return f'"{text.removesuffix("]")} | {" | ".join(own)}]"'
    if not objects:
        return text
    words = [word for word in text.split(" | ") if word != "None"]
    return '"' + " | ".join([*words, *objects, *(["None"] if "None" in text else [])]) + '"'


def _type_text(kind: Any) -> str:
    if get_origin(kind) in (Union, types.UnionType):
        return " | ".join(map(_type_text, get_args(kind)))
    if get_origin(kind) is Literal:
        values = ", ".join(f'"{value}"' for value in get_args(kind))
        return f"Literal[{values}]"
    if get_origin(kind) is tuple:
        return f"Sequence[{_type_text(get_args(kind)[0])}]"
    return "None" if kind is type(None) else str(kind.__name__)


def _docstring(text: str) -> str:
    if len(text) + 10 <= _WIDTH:
        return f'    """{text}"""\n'
    lines = textwrap.wrap(f'"""{text}', _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines) + '\n    """\n'


def main() -> int:
    """Writes the file."""
    FILE.write_text(keywords_text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
