"""Names of jobs, nodes and files, completed by real shells on a terminal."""

import os
import pathlib
import pty
import select
import shutil
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, Cluster, run  # noqa: E402

# How each starts without the user's settings, and loads the function.
SHELLS = {
    "bash": (("--norc", "--noprofile"), "source <(muster completion bash)"),
    "zsh": (("-f",), "autoload -U compinit; compinit -u -D; source <(muster completion zsh)"),
    "fish": (("--no-config", "--private"), "muster completion fish | source"),
}


class Terminal:
    """A shell that someone types to."""

    def __init__(self, shell, folder):
        arguments, load = SHELLS[shell]
        self.shown = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb", "LANG": "C.UTF-8"}
            os.execvpe(shutil.which(shell), [shell, *arguments], environment)
        # A line that comes while the shell prepares for reading it may be lost.
        self.type(f'{load}; echo rea""dy\n', "ready")

    def type(self, keys, until):
        begin = len(self.shown)
        os.write(self.terminal, keys.encode())
        deadline = time.monotonic() + 30
        while until not in self.shown[begin:]:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.terminal], [], [], left)[0]:
                raise AssertionError(f"no {until!r} after {keys!r}:\n{self.shown}")
            self.shown += os.read(self.terminal, 10_000).decode(errors="replace")

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.local = Cluster(None, nodes=1)
        cls.addClassCleanup(cls.local.close)
        job = {"name": "long-name", "resources": {"nodes": 1, "ranks_per_node": 1, "device": "cpu"}, "command": ["true"],
               "workdir": str(cls.local.root)}
        cls.job = cls.local.submit(job)

    def check(self, shell):
        if not shutil.which(shell):
            self.skipTest(f"there is no {shell}")
        terminal = Terminal(shell, self.local.root)
        self.addCleanup(terminal.close)
        muster = f"muster -o name --dir {self.local.dir}"
        # The whole name alone means a job, a node or a file.
        terminal.type(f"{muster} get long-n\t\n", self.job)
        terminal.type(f"{muster} nodes n\t\n", "node-1\r\n")
        (self.local.root / "queues-of-lab.yaml").write_text("queues: 7\n")
        terminal.type(f"{muster} queues check queues-of-l\t\n", "queues: expected a map")

    def test_bash(self):
        self.check("bash")

    def test_zsh(self):
        self.check("zsh")

    def test_fish(self):
        self.check("fish")

    def test_without_a_cluster_it_offers_nothing_and_says_nothing(self):
        for verb in ("get", "drain"):
            done = run("muster", "complete", "--dir", "/nowhere", verb, "")
            self.assertEqual((done.stdout, done.stderr), ("", ""))


if __name__ == "__main__":
    unittest.main()
