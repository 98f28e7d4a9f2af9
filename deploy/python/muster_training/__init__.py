"""Where the programs of Muster are: `muster_training.program("muster-worker")`."""

import pathlib


def program(name="muster"):
    """The path of one of Muster's programs."""
    return str(pathlib.Path(__file__).resolve().parent / "bin" / name)
