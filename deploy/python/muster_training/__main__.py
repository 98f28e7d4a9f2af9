"""`python -m muster_training` is `muster`; the console scripts start the program that they are named after."""

import os
import sys

from muster_training import program


def main():
    name = os.path.basename(sys.argv[0])
    path = program(name if name.startswith("muster") else "muster")
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
