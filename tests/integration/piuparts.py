#!/usr/bin/env python3
"""Debian's piuparts over the packages: installed, removed, installed again and purged in a minimal Debian 12, they leave
nothing behind. It warns of /usr/lib/muster/torch, a link to what the machine's administrator makes. Needs root and Debian's packages.

Prints {"seed": 0, "violations": N} for tests/support/long_run.py.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MUSTER_BIN_DIR", ROOT / "build" / "release" / "bin")).parent
OF_SYSTEMD = r"/\w+/\.ssh|/var/(cache|lib|log)/private|/var/lib/systemd/.*"  # what its own package leaves
OPTIONS = ("--distribution=bookworm", "--no-upgrade-test", "--install-remove-install", f"--ignore-regex=({OF_SYSTEMD})")


def main():
    with tempfile.TemporaryDirectory(prefix="muster-test-") as packages:
        subprocess.run([ROOT / "deploy" / "deb", BUILD, packages], check=True, stdout=sys.stderr, stderr=sys.stderr)
        done = subprocess.run(["piuparts", *OPTIONS, *sorted(pathlib.Path(packages).glob("*.deb"))], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, file=sys.stderr)
    found = re.findall(r"(?m)^\S+ ERROR: FAIL: (.*)$", done.stdout)
    print(json.dumps({"seed": 0, "violations": len(found) or int(done.returncode != 0)}))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
