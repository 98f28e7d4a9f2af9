#!/usr/bin/env python3
"""Two builds of this commit, in folders of different names and without a cache, give one wheel and the same Debian packages, byte for byte.

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


def packages_of(folder):
    """(name, digest) of each."""
    run("git", "clone", "--quiet", ROOT, folder, cwd=folder.parent)
    torch = os.environ.get("MUSTER_LIBTORCH_DIR")
    run("cmake", "--preset", "release", *([f"-DMUSTER_LIBTORCH_DIR={torch}"] if torch else []), cwd=folder)
    run("ninja", "-C", "build/release", "installed", cwd=folder)
    run(PYTHON, "deploy/wheel.py", "build/release", "build/packages", cwd=folder)
    run("deploy/deb", "build/release", "build/packages", cwd=folder)
    packages = [path for path in (folder / "build" / "packages").iterdir() if path.suffix in (".whl", ".deb", ".json")]
    return {(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in packages}


def main():
    with tempfile.TemporaryDirectory(prefix="muster-test-") as temp:
        first, second = (packages_of(pathlib.Path(temp) / name) for name in ("first", "the-second"))
    differ = sorted(first ^ second)
    print(json.dumps({"seed": 0, "violations": len(differ), "differ": differ, "packages": sorted(first)}))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
