"""`python -m muster_training` is `muster`; the console scripts start the program that they are named after."""

import os
import sys

from muster_training import damaged_library, program

BAD_INPUT = 78  # the exit code


def main():
    name = os.path.basename(sys.argv[0])
    library = damaged_library()
    if library is not None:
        print(f"{name}: {library} is damaged.\nInstall Muster again (pip install --force-reinstall).", file=sys.stderr)
        sys.exit(BAD_INPUT)
    path = program(name if name.startswith("muster") else "muster")
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
