#!/bin/sh
# Measures the whole GPU table on a machine that can install nothing: see benchmarks/carry.txt.
# Arguments go to `python -m benchmarks.waves measure`.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
carried="$(mktemp -d)"
"$python" - "$carried" <<'END'
import pathlib, sys, zipfile
from importlib import metadata

for wheel in sorted(pathlib.Path(".peers/wheels").glob("*.whl")):
    name, version = wheel.name.split("-")[:2]
    try:
        print("there:", name, metadata.version(name))
    except metadata.PackageNotFoundError:
        zipfile.ZipFile(wheel).extractall(sys.argv[1])
        print("carried:", name, version)
END
PYTHONPATH="$PWD/src:$carried" PYTHONUNBUFFERED=1 exec "$python" -m benchmarks.waves measure "$@"
