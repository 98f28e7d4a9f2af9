"""Accounts of a machine that only a test sees: the files that name them are mounted over those of the machine, in a mount namespace
of the test's own.

  if accounts.missing():
      self.skipTest(accounts.missing())
  root = accounts.make({"ada": 61002})        # an empty directory that every user can enter, on a disk in memory
  accounts.let_in(pathlib.Path("/closed/libs"))  # every user reaches it
"""

import ctypes
import os
import pathlib
import subprocess
import tempfile

CLONE_NEWNS = 0x00020000
PLACE = pathlib.Path("/mnt")
_made = {}


def missing():
    """Why there can be none here; empty: there can be."""
    if os.geteuid() != 0:
        return "only root can run jobs as other users"
    done = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    return "" if done.returncode == 0 else "mount namespaces are not allowed here"


def mount(*words):
    subprocess.run(["mount", *map(str, words)], check=True, timeout=60)


def make(ids):
    """`ids`: uid and gid of each name. Once per process; every later process of it sees them."""
    if not _made:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        mount("--make-rprivate", "/")
        mount("-t", "tmpfs", "-o", "mode=755", "test", PLACE)
        for file, line in (("passwd", "{0}:x:{1}:{1}::/mnt/home/{0}:/bin/sh\n"), ("group", "{0}:x:{1}:\n")):
            text = pathlib.Path("/etc", file).read_text(encoding="utf-8")
            copy = PLACE / file
            copy.write_text(text + "".join(line.format(name, number) for name, number in ids.items()), encoding="utf-8")
            mount("--bind", copy, f"/etc/{file}")
        for name, number in ids.items():
            home = PLACE / "home" / name
            home.mkdir(parents=True)
            os.chown(home, number, number)
            home.chmod(0o700)
        tempfile.tempdir = str(PLACE)
        _made.update(ids)
    return PLACE


def let_in(path):
    """A directory below others that only their owners may pass: a layer over each of those lets all pass, where the test sees it."""
    for folder in reversed(path.parents):
        if folder.stat().st_mode & 0o001:
            continue
        layer = PLACE / "layers" / str(len(list(PLACE.glob("layers/*"))))
        for name in ("upper", "work"):
            (layer / name).mkdir(parents=True)
        (layer / "upper").chmod(0o711)
        mount("-t", "overlay", "-o", f"lowerdir={folder},upperdir={layer}/upper,workdir={layer}/work", "test", folder)
