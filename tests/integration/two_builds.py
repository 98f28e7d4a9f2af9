#!/usr/bin/env python3
"""Two builds of this commit, in folders of different names and without a cache, give one wheel, byte for byte.

Prints {"seed": 0, "violations": N, ...} for tests/support/long_run.py.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
PYTHON = CACHE / "muster" / "release" / "bin" / "python"


def run(*command, cwd):
    subprocess.run(list(map(str, command)), cwd=cwd, check=True, stdout=sys.stderr,
                   env={**os.environ, "CCACHE_DISABLE": "1"})


def wheel_of(folder):
    run("git", "clone", "--quiet", ROOT, folder, cwd=folder.parent)
    torch = os.environ.get("MUSTER_LIBTORCH_DIR")
    run("cmake", "--preset", "release", *([f"-DMUSTER_LIBTORCH_DIR={torch}"] if torch else []), cwd=folder)
    run("ninja", "-C", "build/release", "installed", cwd=folder)
    run(PYTHON, "deploy/wheel.py", "build/release", "build/packages", cwd=folder)
    (wheel,) = (folder / "build" / "packages").glob("*.whl")
    return wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest()


def main():
    with tempfile.TemporaryDirectory(prefix="muster-test-") as temp:
        wheels = {wheel_of(pathlib.Path(temp) / name) for name in ("first", "the-second")}
    print(json.dumps({"seed": 0, "violations": len(wheels) - 1, "wheels": sorted(wheels)}))
    return 0 if len(wheels) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
