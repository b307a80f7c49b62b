"""What tests of the engine share."""

import pytest
from torch import Tensor

from adabest.engine.arrival import Arrival


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that are said to be on their way, as those of a GPU are."""
    begin = Arrival.__init__

    def begin_late(self: Arrival, values: Tensor) -> None:
        begin(self, values)
        self.is_there = False

    monkeypatch.setattr(Arrival, "__init__", begin_late)
