"""The tutorials of docs/: every command that they show is run as a reader types it, and prints what they show.

  tutorials_test.py                    compares all of them
  tutorials_test.py Tutorials.test_torchrun
  tutorials_test.py --write torchrun   runs the commands of one and writes their outputs into its page

page.py says how a page is written. A page's commands run in a bash of its own that keeps its state, in an empty directory
that is also its HOME; nothing is left of them afterwards.
"""

import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / name) for name in ("slurm", "support")]

import lab  # noqa: E402
import peer  # noqa: E402
from cluster import BIN, ROOT, kill, wait_until  # noqa: E402
from page import ROOT as HOME  # noqa: E402
from page import Page, difference, merge  # noqa: E402

COMMAND_S = 300
PROSE_WORDS = 750
NAMES = ("admin", "failure-drill", "fine-tuner", "slurm", "team", "torchrun")
WITH_TORCH = ("fine-tuner", "torchrun")  # their readers have torch and transformers
KEPT = ("LANG", "LD_LIBRARY_PATH", "TERM", "USER")
# Reads commands from descriptor 3, each ended by a NUL, and ends the output of each with a NUL, its exit code and a NUL.
LOOP = r"""
while IFS= read -r -d '' -u 3 command; do
  eval "$command" 3<&- </dev/null
  printf '\0%d\0' "$?"
done
"""


def docs(name):
    return ROOT / "docs" / f"tutorial-{name}.md"


class Shell:
    """A bash that runs one command after the other. `words`: what stands before it, to run it elsewhere."""

    def __init__(self, root, environment, words=()):
        self.root = root
        commands, self._commands = os.pipe()
        # `words` may pass on no other descriptors than those of the standard.
        self._process = subprocess.Popen(
            [*words, "bash", "--noprofile", "--norc", "-c", f"exec 3<&0 </dev/null 2>&1\ncd {root}\n{LOOP}"],
            stdin=commands, stdout=subprocess.PIPE, env=environment, cwd=root, start_new_session=True)
        os.close(commands)
        self._rest = b""

    def run(self, command, timeout=COMMAND_S):
        """(exit code, output) of a command."""
        os.write(self._commands, command.encode() + b"\0")
        end = time.monotonic() + timeout
        while self._rest.count(b"\0") < 2:
            ready = select.select([self._process.stdout], [], [], max(0, end - time.monotonic()))[0]
            part = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not part:
                raise AssertionError(f"{'the shell has ended' if ready else f'not within {timeout} s'}: {command}\n"
                                     f"{self._rest.decode(errors='replace')}")
            self._rest += part
        output, code, self._rest = self._rest.split(b"\0", 2)
        return int(code), output.decode(errors="replace")

    def close(self):
        os.close(self._commands)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(timeout=30)
        self._process.stdout.close()


def processes_at_home(root):
    """Processes that the page's shell has started, however they were: they have its HOME."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            variables = pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"HOME={root}".encode() in variables:
            found.append(int(entry))
    return found


class Run:
    """One run of a page, with a directory of its own."""

    def __init__(self, test, page):
        self.test, self.page, self.words, self.lab = test, page, [], None
        name = page.path.stem.removeprefix("tutorial-")
        if name == "slurm":
            self.lab = lab.Lab.of(test, 3, visible=[BIN], slurmd_timeout_s=5, settings={"MessageTimeout": 3})
            self.root = str(self.lab.shared)
            self.words = self.lab.words(())
        else:
            self.root = tempfile.mkdtemp(prefix="m-", dir="/tmp")
            test.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.shell = Shell(self.root, self._environment(name), self.words)
        test.addCleanup(self._end)

    def _environment(self, name):
        path = [str(BIN.resolve())]
        if name in WITH_TORCH:
            peer.require()
            path.append(str(peer.PYTHON.parent))
        own = {key: os.environ[key] for key in KEPT if key in os.environ}
        own.update(HOME=self.root, MUSTER_SOURCE=str(ROOT), LC_ALL="C.UTF-8", TZ="UTC", PYTHONDONTWRITEBYTECODE="1",
                   PATH=":".join([*path, os.environ.get("PATH", ""), lab.SEARCH]))
        if self.lab:
            own["SLURM_CONF"] = self.lab.environment()["SLURM_CONF"]
        return own

    def _end(self):
        self.shell.close()
        for endpoint in pathlib.Path(self.root).glob("**/coordinator/endpoint.json"):
            subprocess.run([BIN / "muster", "down", "--dir", endpoint.parents[1]], timeout=60, check=False,
                           capture_output=True)
        for pid in processes_at_home(self.root):
            kill(pid)
        wait_until(lambda: not processes_at_home(self.root), "every process of the page has ended", 30)

    def run(self):
        """Fails the test at the first command that differs; with `write` the page gets what there is instead."""
        for block in self.page.blocks:
            if block.file:
                (self._directory() / block.file).write_text("\n".join(block.body) + "\n", encoding="utf-8")
            for command in block.commands:
                self._run(block, command)

    def _directory(self):
        return pathlib.Path(self.shell.run("pwd")[1].strip())

    def _run(self, block, command):
        where = f"{self.page.path.name}: $ {command.text}"
        began = time.monotonic()
        code, output = self.shell.run(command.text)
        if os.environ.get("MUSTER_TUTORIAL_TIMES"):
            print(f"{time.monotonic() - began:6.1f} s  {command.text}", file=sys.stderr)
        actual = output.replace(self.root, HOME).splitlines()
        merged = merge(command.output, actual, block.varies)
        if self.test.write:
            print(*command.shown, *actual, sep="\n", flush=True)
            command.output = actual if merged is None else merged
        elif merged is None:
            self.test.fail(f"{where}\n{difference(command.output, actual, block.varies)}")
        self.test.assertEqual(code, block.exits, f"the exit code of {where}\n{output}")


class Tutorials(unittest.TestCase):
    write = False

    def run_page(self, name):
        page = Page(docs(name))
        words = len(page.prose().split())
        self.assertLessEqual(words, PROSE_WORDS, f"{page.path.name} has {words} words outside of its blocks")
        try:
            Run(self, page).run()
        finally:
            if self.write:
                page.write()

    def test_every_tutorial_has_a_test(self):
        found = sorted(path.stem.removeprefix("tutorial-") for path in (ROOT / "docs").glob("tutorial-*.md"))
        self.assertEqual(found, sorted(NAMES))


class Comparison(unittest.TestCase):
    """What page.py takes for equal."""

    def test_only_declared_numbers_may_differ(self):
        self.assertEqual(merge(["took 1.5 s"], ["took 12 s"], ["seconds"]), ["took 12 s"])
        self.assertIsNone(merge(["took 1.5 s"], ["took 12 s"], []))
        self.assertIsNone(merge(["took 1.5 s, pid 7"], ["took 12 s, pid 8"], ["seconds"]))
        self.assertIsNone(merge(["took 1.5 s"], ["took 12 s", "more"], ["seconds"]))

    def test_lines_are_left_out_only_where_the_page_says_so(self):
        self.assertEqual(merge(["a", "...", "c 1 s"], ["a", "b", "b", "c 2 s"], ["seconds"]), ["a", "...", "c 2 s"])
        self.assertIsNone(merge(["a", "...", "c"], ["a", "b", "c", "d"], []))
        self.assertIsNone(merge(["a", "c"], ["a", "b", "c"], []))

    def test_a_shell_keeps_its_state_and_a_command_has_a_deadline(self):
        shell = Shell("/", {"PATH": "/bin:/usr/bin"})
        self.addCleanup(shell.close)
        self.assertEqual(shell.run("export A=b; cd /usr; false"), (1, ""))
        self.assertEqual(shell.run('echo "$A" "$PWD"; ls /none 2>&1 >/dev/null | wc -l'), (0, "b /usr\n1\n"))
        with self.assertRaisesRegex(AssertionError, "not within 0.2 s: sleep 60"):
            shell.run("sleep 60", timeout=0.2)


for _name in NAMES:
    setattr(Tutorials, "test_" + _name.replace("-", "_"), lambda self, name=_name: self.run_page(name))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        Tutorials.write = True
        sys.argv[1:] = ["Tutorials.test_" + name.replace("-", "_") for name in sys.argv[2:]]
    unittest.main()
