"""A Linux system in a folder, run as a machine of its own: what runs there sees no other files, processes or networks.

  with SystemCopy(folder, {packages: "/packages"}) as machine:   # a copy, whose changes go with it
      machine.type("cd /tmp && export A=1")
      seconds, text, code = machine.type("echo $A")              # in the same shell; raises where the line fails
  with SystemCopy(folder, in_place=True, network=True) as machine:   # the system itself, with this machine's network
      machine.type("apt-get update")

It needs root, and a file system for the changes that can lie over another one.
"""

import os
import pathlib
import select
import shlex
import shutil
import subprocess
import tempfile
import time

# $1: a folder of ours; $2: the system; $3: "copy" or "in-place"; then pairs of a folder and where it is seen, up to --.
_MOUNT = """set -e
ours=$1 system=$2 how=$3; shift 3
mkdir "$ours/work" "$ours/root" "$ours/upper"
if [ $how = in-place ]; then mount --bind "$system" "$ours/root"
else mount -t overlay overlay -o "lowerdir=$system,upperdir=$ours/upper,workdir=$ours/work" "$ours/root"; fi
hostname machine
printf '127.0.0.1 localhost\\n127.0.1.1 machine\\n' >"$ours/root/etc/hosts"
mount -t proc proc "$ours/root/proc"
mount --rbind /dev "$ours/root/dev"
mount -t tmpfs tmpfs "$ours/root/dev/shm" -o mode=1777
mount -t sysfs sysfs "$ours/root/sys" -o ro || mount --rbind /sys "$ours/root/sys"
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "$ours/root$2"; fi
  mount --bind "$1" "$ours/root$2"
  shift 2
done
shift
ip link set lo up 2>/dev/null || true
exec chroot "$ours/root" "$@"
"""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LOOK_S = 0.01


class Shell:
    """A shell that stays; belongs to the thread that made it."""

    def __init__(self, *words):
        # What runs there ends with this process, however it does.
        self._process = subprocess.Popen(["setpriv", "--pdeathsig=KILL", *map(str, words), "bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, start_new_session=True)
        os.set_blocking(self._process.stdout.fileno(), False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def type(self, line, *, watch=lambda text: None, limit_s=600, check=True):
        """Runs a line: seconds, what it printed, and its exit code, which `check` wants to be 0. `watch` is called with what is
        printed, again and again meanwhile."""
        mark = f"-- {time.monotonic_ns()} ended with "
        began = time.monotonic()
        self._process.stdin.write(f"eval {shlex.quote(line)} </dev/null; echo \"{mark}$?\"\n".encode())
        self._process.stdin.flush()
        text = ""
        while mark not in text or not text.endswith("\n"):
            if select.select([self._process.stdout], [], [], _LOOK_S)[0]:
                piece = os.read(self._process.stdout.fileno(), 1 << 16).decode(errors="replace")
                if not piece:
                    raise AssertionError(f"the shell ended at `{line}`:\n{text}")
                text += piece
            watch(text)
            if time.monotonic() - began > limit_s:
                raise AssertionError(f"not within {limit_s} s: `{line}`:\n{text}")
        seconds = time.monotonic() - began
        text, _, code = text.rpartition(mark)
        if check and int(code) != 0:
            raise AssertionError(f"`{line}` ended with {int(code)}:\n{text}")
        return seconds, text, int(code)


class SystemCopy(Shell):
    """`binds`: folders of this machine, and where they are seen there; `user`: the number of an ordinary one, with its home;
    `changes`: the folder below which what a copy changes lies while it runs; `before`: lines of a shell before the system is
    entered, with $ours/root as its root."""

    def __init__(self, folder, binds=None, *, user=0, home="/root", network=False, in_place=False, changes=None, before=""):
        self._ours = pathlib.Path(tempfile.mkdtemp(prefix="muster-test-", dir=changes))
        self._ours.chmod(0o755)  # the root of its / is below
        pairs = [word for pair in (binds or {}).items() for word in pair]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        super().__init__(
            "unshare", "--mount", "--pid", "--ipc", "--uts", *([] if network else ["--net"]), "--fork", "--kill-child",
            "sh", "-c", _MOUNT.replace("exec chroot", f"{before}\nexec chroot"), "sh", self._ours, folder,
            "in-place" if in_place else "copy", *pairs, "--", *become,
            "env", "-i", f"HOME={home}", f"PATH={_PATH}", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
        self.type("cd ~")

    def close(self):
        """Ends all that runs there, and removes what a copy has changed."""
        super().close()
        shutil.rmtree(self._ours, ignore_errors=True)

    def changed(self, path):
        """Where a file that the copy has written lies on this machine."""
        return self._ours / "upper" / path.lstrip("/")
