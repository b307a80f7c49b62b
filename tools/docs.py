"""What the docs site makes out of the package itself, so that no page can fall behind it.

mkdocs loads this file for ``on_page_markdown``, which fills in what pages ask for with a comment such as
``<!-- generated: commands -->``, and for ``on_page_content``, which typesets formulas, so that readers need neither a
script nor a network for them. mkdocstrings loads it for ``Docstrings``, which puts what docstrings say in
reStructuredText, tables and literal blocks, into Markdown.
"""

import contextlib
import html
import inspect
import io
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import griffe

import adabest.runs.files.folder
from adabest.algorithms.catalog import ALGORITHMS
from adabest.algorithms.listing import list_algorithms
from adabest.algorithms.records import Family
from adabest.cli import main
from adabest.cli.catalog import COMMANDS
from adabest.cli.parser import Field, help_texts
from adabest.paper.leaderboard import FAMILY_COLOURS
from adabest.registry import Option, options_of
from adabest.runs.settings.call_arguments import CALL_ARGUMENTS
from adabest.runs.settings.config import SETTINGS, Config
from adabest.runs.settings.declaration import GROUPS

_COLUMNS = "88"
_MAKING_RUNS = ("run", "compare", "sweep", "tune")
_RULE = re.compile(r"=+(?: +=+)+")
_TABLE = re.compile(rf"^{_RULE.pattern}\n(?:.+(?:\n|\Z))+", re.M)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
_CODE = re.compile(r"<(pre|code)\b.*?</\1>", re.S)
_CELL = re.compile(r"<td\b.*?</td>", re.S)
_NAME = re.compile(r"<code>[^<]*</code>")
_COMMAND = re.compile(r'<div class="language-sh.*?</div>', re.S)
_OPTION = re.compile(r"(?<![\w<&;/-])--?[a-z][\w-]*(?![^<]*>)")
_BARRED = re.compile(r"(\w)((?:</span><span[^>]*>)?)\u0304")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fills in what a page asks for; what comes from a file of results is there already, and only its marks go."""
    markdown = re.sub(r"^<!-- (?:generated: results/.+|end) -->\n", "", markdown, flags=re.M)
    return re.sub(r"<!-- generated: (\S+) -->", lambda found: GENERATED[found[1]](), markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Typesets the formulas of a page, and lets letters with a bar, long names and commands read right in code."""
    return with_whole_options(with_breaks_in_names(with_bars_in_code(with_formulas(html))))


def with_formulas(text: str) -> str:
    """HTML in which the formulas that Markdown's arithmatex marked are MathML, which browsers show by themselves."""
    return _FORMULA.sub(lambda found: _mathml(html.unescape(found[3]).strip(), block=found[2] == "["), text)


def _mathml(formula: str, *, block: bool) -> str:
    from latex2mathml.converter import convert  # only where the site is built

    return str(convert(formula, display="block" if block else "inline"))


def with_bars_in_code(text: str) -> str:
    """HTML in whose code a line is drawn over letters such as θ̄.

    Fonts of equal width often put the combining bar beside its letter. It stays in the text, where it is copied and
    read aloud, but isn't drawn.
    """

    def barred(found: re.Match[str]) -> str:
        return f'<span class="barred">{found[1]}<span>\u0304</span></span>{found[2]}'

    return _CODE.sub(lambda found: _BARRED.sub(barred, found[0]), text)


def with_breaks_in_names(text: str) -> str:
    """HTML in whose tables names, such as those of settings, break behind an underscore where a column is narrow."""
    return _CELL.sub(lambda cell: _NAME.sub(lambda name: name[0].replace("_", "_<wbr>"), cell[0]), text)


def with_whole_options(text: str) -> str:
    """HTML in whose commands no option is broken, as browsers do behind each hyphen."""
    return _COMMAND.sub(lambda found: _OPTION.sub(r'<span class="option">\g<0></span>', found[0]), text)


def _commands() -> str:
    """The help of every command, as a terminal shows it."""
    return "\n".join(f"## adabest {name}\n\n```text\n{_help(name)}```\n" for name in COMMANDS)


def _help(command: str) -> str:
    printed = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = _COLUMNS
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main([command, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return "".join(f"{line.rstrip()}\n" for line in printed.getvalue().rstrip().splitlines())


def _settings() -> str:
    """The settings of every run, by group."""
    parts = []
    for group in GROUPS:
        rows = [
            (f"`{name}`", _default(one.default), one.meaning.help)
            for name, one in SETTINGS.items()
            if one.meaning.group == group
        ]
        if rows:
            parts.append(f"### {group.capitalize()}\n\n{_table(('setting', 'default', 'meaning'), rows)}\n")
    return "\n".join(parts)


def _attributes() -> str:
    """The settings as the attributes of a docstring."""
    lines = [f"    {name} ({inspect.formatannotation(one.type)}): {one.meaning.help}" for name, one in SETTINGS.items()]
    return "\n".join(["Attributes:", *lines, "    hyperparameters: The algorithm's own settings, by name."])


def _hyperparameters() -> str:
    """The settings of each algorithm."""
    parts = []
    for name, kind in ALGORITHMS.builtin.items():
        own = options_of(kind)
        parts.append(f"### {name}\n\n{_options(kind, own) if own else 'None.'}\n")
    return "\n".join(parts)


def _call() -> str:
    """What belongs to a command and is no setting of a run."""
    rows = []
    for name, one in CALL_ARGUMENTS.items():
        owners = [command for command in _MAKING_RUNS if any(field.name == name for field in _fields(command))]
        rows.append((f"`{name}`", ", ".join(f"`{owner}`" for owner in owners), one.meaning.help))
    return _table(("setting", "of", "meaning"), rows)


def _fields(command: str) -> list[Field]:
    return COMMANDS[command].load().fields([command])


def _options(kind: type, options: Mapping[str, Option]) -> str:
    """Names, defaults, and what the class's docstring says of them."""
    words = help_texts(kind.__doc__)
    rows = [(f"`{name}`", _default(option.default), words[name]) for name, option in options.items()]
    return _table(("setting", "default", "meaning"), rows)


def _default(value: Any) -> str:
    return "–" if value is None else f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def _run_folder() -> str:
    """The files of a run, as the docstring of their module lists them."""
    found = _TABLE.search(str(adabest.runs.files.folder.__doc__))
    assert found, "adabest/runs/folder.py no longer has a table of its files"
    return _from_simple_table(found[0])


def _families() -> str:
    """The families of algorithms, each with a table of its members."""
    listings, parts = list_algorithms(), []
    head = ("algorithm", "added to ∇L(w)", "down", "up", "client", "server", "needs", "paper")
    for family in Family:
        rows = [
            (
                f"`{of.name}`",
                f"`{of.term}`" if of.term else "–",
                of.down,
                of.up,
                of.client,
                of.server,
                _listed(of.needs),
                of.paper,
            )
            for of in listings
            if of.family == family.words
        ]
        title, _, words = family.value.partition(": ")
        parts.append(f"### {title.capitalize()}\n\n{words[0].upper()}{words[1:]}.\n\n{_table(head, rows)}\n")
    return "\n".join(parts)


def _families_picture() -> str:
    """A picture of the families: a row for each, with the terms that it adds to a local step, and its members."""
    listings, parts, top = list_algorithms(), [], 8
    for family, colour in zip(Family, FAMILY_COLOURS, strict=True):
        members = [of for of in listings if of.family == family.words]
        terms = list(dict.fromkeys(of.term or "nothing" for of in members))
        names = textwrap.wrap(", ".join(of.name for of in members), 40, break_on_hyphens=False)
        height = 14 + 18 * max(len(terms), len(names), 1)
        parts.append(f'<rect x="4" y="{top}" width="8" height="{height - 6}" rx="3" fill="{colour.light}"/>')
        parts.append(_text(20, top + 18, [family.words], "font-weight:bold"))
        parts.append(_text(170, top + 18, terms, "font-family:monospace"))
        parts.append(_text(560, top + 18, names, ""))
        top += height
    title = "The families of algorithms, what each adds to the gradient of a local step, and its members"
    return (
        f'<svg viewBox="0 0 880 {top}" role="img" style="font-size:13px;width:100%;min-width:40rem" '
        f'fill="currentColor" xmlns="http://www.w3.org/2000/svg"><title>{title}</title>{"".join(parts)}</svg>'
    )


def _text(x: int, y: int, lines: Iterable[str], style: str) -> str:
    """Lines of text in a picture, one below the other."""
    spans = "".join(
        f'<tspan x="{x}" y="{y + 18 * number}">{html.escape(line)}</tspan>' for number, line in enumerate(lines)
    )
    return f'<text style="{style}">{spans}</text>'


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words) or "–"


GENERATED: dict[str, Callable[[], str]] = {
    "commands": _commands,
    "settings": _settings,
    "hyperparameters": _hyperparameters,
    "call": _call,
    "families": _families,
    "families-picture": _families_picture,
    "run-folder": _run_folder,
}


def to_markdown(docstring: str) -> str:
    """A docstring with its tables as Markdown's, and without the ``::`` before what is indented anyway."""
    with_tables = _TABLE.sub(lambda found: _from_simple_table(found[0]), docstring)
    return re.sub(r"^::$", "", re.sub(r"(?<=\S)::$", ":", with_tables, flags=re.M), flags=re.M)


def _from_simple_table(text: str) -> str:
    """A table whose cells stand at least two spaces apart; the head, if it has one, ends with a rule of its own."""
    blocks: list[list[list[str]]] = []
    for line in text.strip().splitlines():
        if _RULE.fullmatch(line):
            blocks.append([])
        else:
            blocks[-1].append(re.split(r" {2,}", line))
    *head, rows, _ = blocks
    return _table(head[0][0] if head else [""] * len(rows[0]), rows) + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


class Docstrings(griffe.Extension):
    """Puts docstrings into Markdown before they are read."""

    def on_object(self, *, obj: griffe.Object, **others: Any) -> None:
        """One module, class, function or attribute was found."""
        if obj.path == f"{Config.__module__}.Config" and obj.docstring is not None:
            obj.docstring.value = f"{obj.docstring.value}\n\n{_attributes()}"
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
