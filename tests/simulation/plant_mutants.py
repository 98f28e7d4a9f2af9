#!/usr/bin/env python3
"""Copies sources and plants the mutants in the copies.

  plant_mutants.py OUT FILE...

FILE: below the root of the tree. A mutant whose text its file does not have exactly once is an error: the list is to
follow the code.
"""

import pathlib
import sys

import mutants

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARKER = "muster-mutant:"


def planted(file, text):
    for mutant in mutants.MUTANTS:
        if mutant.file != file:
            continue
        if text.count(mutant.old) != 1:
            sys.exit(f"mutant {mutant.name}: {file} has its text {text.count(mutant.old)} times, not once; "
                     "change tests/simulation/mutants.py as the code was changed")
        switch = f'::muster::sim::IsMutant("{MARKER}{mutant.name}")'
        text = text.replace(mutant.old, mutant.new.replace("MUTANT", switch))
    return f'#include "tests/simulation/mutant.h"\n#line 1 "{ROOT / file}"\n{text}'


def main(out, files):
    unknown = {mutant.file for mutant in mutants.MUTANTS} - set(files)
    if unknown:
        sys.exit(f"these files of mutants are not built: {', '.join(sorted(unknown))}")
    for file in files:
        copy = pathlib.Path(out) / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(planted(file, (ROOT / file).read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
