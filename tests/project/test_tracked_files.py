"""The files in version control: no merge conflict is left in them, and links into the repository lead somewhere."""

import re
import subprocess

import pytest
from docs_pages import ROOT

# git's markers; a line of seven equals signs alone may also underline a title.
CONFLICT = re.compile(r"^<{7} .*\n(?:.*\n)*?={7}\n(?:.*\n)*?>{7} .*$|^<{7} |^>{7} ", re.MULTILINE)
INTO_REPOSITORY = re.compile(r"https://github\.com/adabest/adabest/(?:tree|blob)/main/([^\s)#>`\"']+)")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The tracked text files, by their paths."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this copy of the repository isn't under git's control")
    found = {}
    for name in listed.stdout.decode().split("\0"):
        content = (ROOT / name).read_bytes() if name and (ROOT / name).is_file() else b"\0"
        if b"\0" not in content:
            found[name] = content.decode("utf-8", errors="replace")
    return found


def test_no_file_has_a_merge_conflict(texts: dict[str, str]) -> None:
    assert len(texts) > 100
    assert [name for name, text in texts.items() if CONFLICT.search(text)] == []


@pytest.mark.parametrize(
    ("lines", "is_conflict"),
    [
        (["<" * 7 + " HEAD", "ours", "=" * 7, "theirs", ">" * 7 + " branch"], True),
        (["text", ">" * 7 + " branch"], True),
        (["<" * 7 + " HEAD"], True),
        (["Results", "=" * 7, "text"], False),
        (["a " + "<" * 7 + " b"], False),
    ],
)
def test_conflicts_are_told_from_titles(lines: list[str], is_conflict: bool) -> None:
    assert bool(CONFLICT.search("\n".join(lines))) == is_conflict


def test_links_into_the_repository_lead_somewhere(texts: dict[str, str]) -> None:
    links = {(name, link) for name, text in texts.items() for link in INTO_REPOSITORY.findall(text)}
    assert links
    assert [(name, link) for name, link in sorted(links) if not (ROOT / link).exists()] == []
