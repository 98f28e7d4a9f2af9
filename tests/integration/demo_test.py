"""`muster demo` as a user sees it: on a terminal, to its end, and interrupted; nothing runs afterwards."""

import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, wait_until  # noqa: E402

PATIENCE_S = 240
COMMIT = "0123456789" * 4


class OnATerminal:
    """`muster demo` with a pseudo terminal: `text` is what it has shown."""

    def __init__(self, test, *words, **environment):
        self.test, self.text = test, ""
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen([BIN / "muster", "demo", *words], stdin=slave, stdout=slave, stderr=slave,
                                        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", **environment})
        os.close(slave)
        test.addCleanup(self.end)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    def read(self):
        if select.select([self.master], [], [], 0.2)[0]:
            try:
                self.text += os.read(self.master, 1 << 16).decode(errors="replace").replace("\r", "")
            except OSError:  # the other end is closed
                time.sleep(0.1)

    def wait_for(self, text):
        end = time.monotonic() + PATIENCE_S
        while text not in self.text:
            self.test.assertTrue(self.process.poll() is None and time.monotonic() < end, f"no '{text}' in:\n{self.text}")
            self.read()

    def type(self, line):
        os.write(self.master, f"{line}\n".encode())

    def wait(self):
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            self.test.assertLess(time.monotonic(), end, self.text)
            self.read()
        self.read()
        return self.process.returncode


def processes_with(text):
    """Command lines that name it."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and path.parent.name != str(os.getpid()):
            found.append(line)
    return found


class Demo(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-demo-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def test_a_model_learns_while_a_rank_is_killed(self):
        demo = OnATerminal(self, TMPDIR=str(self.dir))
        demo.wait_for("Press Enter to kill rank 1")
        demo.type("")
        demo.wait_for("Ask it one of the questions")
        demo.type("What is a gang?")
        demo.wait_for("All ranks of an attempt; all of them start, or none.\n> ")
        demo.type("")
        self.assertEqual(demo.wait(), 0, demo.text)
        self.assertRegex(demo.text, r"it answers 0 of 20 questions")
        after = int(re.search(r"The trained model answers (\d+) of 20", demo.text).group(1))
        self.assertGreaterEqual(after, 15)
        self.assertIn("That is memorisation", demo.text)
        self.assertIn("killed by SIGKILL", demo.text)
        self.assertIn("re-formed in place", demo.text)
        self.assertIn("(--keep keeps it)", demo.text)
        self.assertEqual(list(self.dir.iterdir()), [])
        self.assertEqual(processes_with(str(self.dir)), [])

    def test_an_interrupted_one_leaves_nothing_running_and_its_directory_serves_again(self):
        out = self.dir / "out"
        for _ in range(2):
            demo = OnATerminal(self, "--out", str(out))
            demo.wait_for("step ")
            demo.process.send_signal(signal.SIGINT)
            self.assertEqual(demo.wait(), 130, demo.text)
            self.assertEqual(processes_with(str(out)), [])
            self.assertTrue((out / "lessons.jsonl").exists())

    def demo(self, *words, **environment):
        return subprocess.run([BIN / "muster", "demo", *map(str, words)], cwd=self.dir, capture_output=True, text=True, timeout=300,
                              check=False, stdin=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(self.dir), **environment})

    def make_model(self, directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([BIN / "muster-trainer", "init-model", "--preset", "tiny", "--out", directory], check=True, timeout=60,
                       stdout=subprocess.DEVNULL)

    def test_a_model_of_the_hubs_cache_learns_without_a_terminal(self):
        repository = self.dir / "hub" / "models--org--name"
        self.make_model(repository / "snapshots" / COMMIT)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(COMMIT)
        done = self.demo("--model", "org/name", "--keep", HF_HUB_CACHE=str(self.dir / "hub"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("killed by SIGKILL", done.stdout)
        for of_a_terminal in ("Press Enter", "Ask it"):
            self.assertNotIn(of_a_terminal, done.stdout)
        kept = pathlib.Path(re.search(r"^files  (.*)$", done.stdout, re.M).group(1))
        self.assertEqual(kept.parent, self.dir)
        self.assertTrue((kept / "out" / "model" / "model.safetensors").exists())

    def test_a_model_of_the_users_own_is_trained_until_a_signal_comes(self):
        self.make_model(self.dir / "mine")
        for signal_, code in ((signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)):
            with self.subTest(signal_):
                demo = subprocess.Popen([BIN / "muster", "demo", "--model", "mine", "--out", "out"], cwd=self.dir, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
                self.addCleanup(demo.stdout.close)
                shown = ""
                while "step " not in shown and (line := demo.stdout.readline()):
                    shown += line
                demo.send_signal(signal_)
                self.assertEqual(demo.wait(timeout=60), code, shown)
                wait_until(lambda: not processes_with(str(self.dir)), "nothing runs any more", timeout=30)

    def test_what_it_cannot_use_is_named(self):
        (self.dir / "thesis.txt").write_text("years of work")
        (self.dir / "empty").mkdir()
        for words, code, why in ((("--out", "thesis.txt"), 6, "thesis.txt is not a directory"),
                                 (("--model", "empty"), 5, "empty/config.json"),
                                 (("--model", "thesis.txt"), 5, "thesis.txt"),
                                 (("--coordinator", "127.0.0.1:1"), 2, "does not accept --coordinator")):
            with self.subTest(words):
                done = self.demo(*words)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertEqual(done.stderr.count(why), 1, done.stderr)
                self.assertNotIn("next   muster up", done.stdout)

    def test_a_directory_with_other_files_is_left_alone(self):
        (self.dir / "thesis.txt").write_text("years of work")
        done = subprocess.run([BIN / "muster", "demo", "--out", self.dir], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("has files that are not of a demo", done.stderr)
        self.assertEqual([path.name for path in self.dir.iterdir()], ["thesis.txt"])


if __name__ == "__main__":
    unittest.main()
