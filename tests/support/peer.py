"""The Python with torch and transformers that `deploy/install-deps --peer` installs."""

import os
import pathlib

_CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
BIN = _CACHE / "muster" / "peer-torch-2.11.0" / "bin"
PYTHON = pathlib.Path(os.environ.get("MUSTER_PEER_PYTHON", BIN / "python"))
TORCHRUN = BIN / "torchrun"


def require():
    """Tests fail, and do not skip, without it: `tests/run --label peer` installs it."""
    if not os.access(PYTHON, os.X_OK):
        raise AssertionError(f"{PYTHON} is not there; run deploy/install-deps --peer")
