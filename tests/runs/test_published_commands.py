"""Commands in files of results: what belongs to one machine isn't published."""

import pytest

from adabest.runs.results_file import without_places


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "/home/me/.venv/bin/adabest reproduce zoo --out /home/me/runs --seeds 0 1",
            "adabest reproduce zoo --seeds 0 1",
        ),
        ("adabest reproduce zoo --data-dir=/data --out=runs", "adabest reproduce zoo"),
        (
            "adabest reproduce zoo --choices /home/me/mine.json --seeds 0",
            "adabest reproduce zoo --choices mine.json --seeds 0",
        ),
        ("adabest reproduce zoo --choices=/home/me/mine.json", "adabest reproduce zoo --choices=mine.json"),
        ("/home/me/make_runs.py 'two words'", "make_runs.py 'two words'"),
        ("adabest show 'no partner", "adabest show ''\"'\"'no' partner"),
        ("", ""),
    ],
)
def test_a_command_names_no_place_of_one_machine(command: str, expected: str) -> None:
    assert without_places(command) == expected
