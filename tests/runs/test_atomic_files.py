"""Files that are written as a whole: a reader finds the old content or the new one."""

from pathlib import Path

import pytest

from adabest.runs.files.atomic_files import write_text


def test_a_file_that_is_in_use_is_replaced_when_it_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows a file can't be replaced while someone reads it."""
    replace, refusals = Path.replace, [PermissionError(13, "in use")] * 3

    def busy(self: Path, target: Path) -> Path:
        if refusals:
            raise refusals.pop()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", busy)
    write_text(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
    refusals.extend([PermissionError(13, "in use")] * 1000)
    with pytest.raises(PermissionError):
        write_text(tmp_path / "file", "newer")
    assert (tmp_path / "file").read_text() == "new"
