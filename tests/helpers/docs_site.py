"""The docs site, built from the pages."""

import os
import subprocess
import sys
from pathlib import Path

from docs_pages import ROOT


def build(site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Builds the site of this checkout into a folder; a warning ends the build."""
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site), *options]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
