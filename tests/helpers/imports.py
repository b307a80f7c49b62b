"""What files import, read off their text."""

import ast
from pathlib import Path


def imports_of(path: Path) -> set[str]:
    """The modules and names that a file imports, in full, wherever in the file it does so."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import, which this test can't read"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
