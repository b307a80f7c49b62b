"""What a run is built of, from its settings."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import run, tiny

import adabest
from adabest.errors import InputError
from adabest.runs.build import _first_averaged_round
from adabest.runs.settings.resolution import resolve


@pytest.mark.parametrize("share", ["0", "0.29", "0.57", "0.58", "0.999", "0.5", "0.333"])
@pytest.mark.parametrize("rounds", [1, 7, 100, 1000])
def test_the_averaged_part_begins_where_the_decimal_number_says(share: str, rounds: int) -> None:
    config, _ = resolve(tiny(average_from=float(share), rounds=rounds))
    assert _first_averaged_round(config) == int(Fraction(share) * rounds) + 1


def test_an_augmentation_that_does_not_fit_the_inputs_is_refused(tmp_path: Path) -> None:
    flat = adabest.from_arrays(np.zeros((40, 4), dtype=np.float32), np.arange(40) % 2, np.zeros((4, 4)), [0, 1, 0, 1])
    with pytest.raises(InputError, match=r"the augmentation can't be used on inputs of shape \(4,\)"):
        run(tmp_path / "run", dataset=flat, model="logistic", augmentation="flip-crop")
    assert not (tmp_path / "run").exists()
