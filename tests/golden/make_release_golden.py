#!/usr/bin/env python3
"""Makes tests/golden/vX.Y.Z, what this version writes: messages, packets and files with every field filled, which
later builds must read. Run it once for a release, before its tag, with a build of the release:

    python3 tests/golden/make_release_golden.py build/release

A folder that is there is made anew only with --again: a released one never changes.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("state_golden", "control_golden")  # the second reads what ranks said
MOST_BYTES = 300 << 10


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    version = re.search(r'kVersion\[\] = "(.*)"', (ROOT / "common/base/version.h").read_text()).group(1)
    out = ROOT / "tests/golden" / f"v{version}"
    if out.exists() and not args.again:
        raise SystemExit(f"{out} is there; --again makes it anew, if {version} is not released yet")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    for name in PROGRAMS:
        subprocess.run([args.build / "tests" / name], env={**os.environ, "MUSTER_GOLDEN_OUT": str(out)}, check=True)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    print(f"{out.relative_to(ROOT)}: {size} bytes")
    if size > MOST_BYTES:
        raise SystemExit(f"more than {MOST_BYTES}")


if __name__ == "__main__":
    main()
