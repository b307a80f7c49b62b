"""What tests of the project share."""

import re
from pathlib import Path

import pytest
from docs_site import build


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The docs site, built once."""
    pytest.importorskip("latex2mathml", reason="latex2mathml isn't installed: it comes with adabest[docs]")
    place = tmp_path_factory.mktemp("site")
    built = build(place)
    assert built.returncode == 0, built.stderr
    assert not re.search(r"warning|error", built.stdout + built.stderr, re.IGNORECASE), built.stderr
    return place
