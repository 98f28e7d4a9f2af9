"""`muster top` and `muster attach` on a terminal, before a real cluster: what is on the screen, that it fits and follows
the terminal's size, keys, a coordinator that goes away, and what there is instead of a screen where there is no terminal.
"""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, Cluster, kill, wait_until  # noqa: E402

SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")
SCREEN, PLAIN = "\x1b[?1049h", "\x1b[?1049l"
SOON_S = 60


class Terminal:
    """A program on a terminal of a size, and what can be read there: a line longer than the terminal is wide is kept
    whole, so that it can be told."""

    def __init__(self, test, *words, columns=80, rows=24, env=None):
        self.master, slave = pty.openpty()
        self.size = (columns, rows)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.raw = ""
        self.lines = {}
        self.row = self.column = 0
        self.pending = b""
        self.slave = slave
        self.process = subprocess.Popen(
            [str(BIN / "muster"), *map(str, words)], stdin=slave, stdout=slave, stderr=slave,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), start_new_session=True,
            env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "NO_COLOR": "", **(env or {})})
        test.addCleanup(self.close)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, columns, rows):
        self.size = (columns, rows)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.master, keys.encode())

    def _take(self):
        while select.select([self.master], [], [], 0.02)[0]:
            self.pending += os.read(self.master, 65536)
            text = self.pending.decode(errors="ignore")
            # The rest of a character or a sequence comes with the next bytes.
            whole = re.search(r"(\x1b(\[[?0-9;]*)?)?$", text).start()
            if text.encode() != self.pending:
                continue
            self.pending = text[whole:].encode()
            self._show(text[:whole])

    def _show(self, text):
        self.raw += text
        at = 0
        while at < len(text):
            sequence = SEQUENCE.match(text, at)
            if sequence:
                self._obey(*sequence.groups())
                at = sequence.end()
                continue
            if text[at] == "\r":
                self.column = 0
            elif text[at] == "\n":
                self.row += 1
            else:
                line = self.lines.get(self.row, "").ljust(self.column)
                self.lines[self.row] = line[:self.column] + text[at] + line[self.column + 1:]
                self.column += 1
            at += 1

    def _obey(self, parameters, command):
        if command == "H":
            numbers = [int(n) for n in parameters.split(";") if n] + [1, 1]
            self.row, self.column = numbers[0] - 1, numbers[1] - 1
        elif command == "J":
            self.lines = {}
        elif command == "K":
            self.lines[self.row] = self.lines.get(self.row, "")[:self.column]
        elif parameters == "?1049":
            self.lines = {}

    def text(self):
        self._take()
        return "\n".join(self.lines.get(row, "") for row in range(max(self.lines, default=-1) + 1))

    def wait_for(self, *parts, timeout=SOON_S):
        try:
            wait_until(lambda: all(part in self.text() for part in parts), f"{parts} on the screen", timeout)
        except AssertionError as failure:
            raise AssertionError(f"{failure}; it shows\n{self.text()}") from None
        return self.text()

    def end(self):
        """The exit code."""
        def ended():
            self._take()
            return self.process.poll() is not None
        wait_until(ended, "the program has ended", SOON_S)
        return self.process.returncode


class Top(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(None, nodes=2, slots=2)
        cls.addClassCleanup(cls.cluster.close)
        cls.job = cls.cluster.submit(cls.cluster.train_job(name="finetune", nodes=1, steps=100000, every=5000))
        cls.waiting = cls.cluster.submit({
            "name": "too-large", "resources": {"nodes": 2, "ranks_per_node": 2, "device": "cpu"},
            "workdir": str(cls.cluster.root), "command": ["true"]})
        cls.cluster.wait_for_step(cls.job, 5)

    def top(self, *words, **options):
        return Terminal(self, "top", *words, "--dir", self.cluster.dir, **options)

    def assert_fits(self, terminal):
        columns, rows = terminal.size
        lines = terminal.text().split("\n")
        self.assertLessEqual(len(lines), rows, terminal.text())
        for line in lines:
            self.assertLessEqual(len(line), columns, line)

    def test_the_cluster_and_a_job_in_80_by_24(self):
        terminal = self.top()
        text = terminal.wait_for("finetune", "nodes: 2 ready", "slots: 1/4", "! job too-large waits: ",
                                 f"next: muster describe {self.waiting}", "q quit")
        self.assertRegex(text, r"finetune +running +\d+/100000 +\d+\.\d{4}")
        self.assert_fits(terminal)
        terminal.type("\r")  # the first job is the one that runs
        text = terminal.wait_for("RANK NODE", "esc back", "slots: 1/4")
        self.assertRegex(text, r"step \d+/100000.*  running")
        self.assertRegex(text, r"loss [\d.]+.* step time [\d.]+ s.* memory ")
        self.assert_fits(terminal)
        terminal.type("\x1b")
        terminal.wait_for("NODES", "too-large")
        terminal.type("q")
        self.assertEqual(terminal.end(), 0)
        self.assertIn(SCREEN, terminal.raw)
        self.assertTrue(terminal.raw.endswith("\x1b[?25h" + PLAIN), terminal.raw[-40:])
        self.assertEqual(termios.tcgetattr(terminal.slave), terminal.before, "keys and echo are as they were")

    def test_a_resize_is_drawn_at_once(self):
        terminal = self.top("--interval", "1h")
        terminal.wait_for("q quit")
        for columns, rows in ((50, 16), (132, 40), (132, 20)):
            with self.subTest(columns=columns, rows=rows):
                terminal.lines = {}
                terminal.resize(columns, rows)
                terminal.wait_for("nodes: 2 ready", "q quit")
                self.assert_fits(terminal)
        self.assertIn("jobs: 1 queued, 1 running  nodes: 2 ready", terminal.text())

    def test_ctrl_c_gives_the_terminal_back(self):
        terminal = self.top()
        terminal.wait_for("q quit")
        terminal.type("\x03")
        terminal.end()
        self.assertTrue(terminal.raw.endswith("\x1b[?25h" + PLAIN), terminal.raw[-40:])
        self.assertEqual(termios.tcgetattr(terminal.slave), terminal.before)

    def test_colours_only_where_they_are_wanted(self):
        for env, expected in (({}, True), ({"NO_COLOR": "1"}, False)):
            with self.subTest(env=env):
                terminal = self.top(env=env)
                terminal.wait_for("finetune", "q quit")
                self.assertEqual(bool(re.search(r"\x1b\[[1-9][0-9;]*m", terminal.raw)), expected)
                terminal.type("q")
                self.assertEqual(terminal.end(), 0)

    def test_a_dumb_terminal_gets_one_picture(self):
        terminal = self.top(env={"TERM": "dumb"})
        self.assertEqual(terminal.end(), 0)
        self.assertIn("finetune", terminal.text())
        self.assertNotIn("\x1b", terminal.raw)

    def test_without_a_terminal_it_is_one_picture_or_json(self):
        piped = self.cluster.muster("top")
        self.assertRegex(piped.stdout, r"finetune +running")
        self.assertNotIn("\x1b", piped.stdout)
        told = self.cluster.json("top")
        self.assertEqual({job["name"]: job["state"] for job in told["jobs"]},
                         {"finetune": "running", "too-large": "queued"})
        self.assertEqual([(p["severity"], p["job"]) for p in told["problems"]], [("info", self.waiting)])
        self.assertEqual(told["problems"][0]["command"], f"muster describe {self.waiting}")
        self.assertEqual(self.cluster.json("top", self.job)["job"]["id"], self.job)

    def test_jsonl_goes_on(self):
        with subprocess.Popen([str(BIN / "muster"), "top", "-o", "jsonl", "--interval", "0.1s", "--dir",
                               str(self.cluster.dir)], stdout=subprocess.PIPE, text=True) as stream:
            self.addCleanup(stream.kill)
            looks = [json.loads(stream.stdout.readline()) for _ in range(3)]
            self.assertEqual([len(look["nodes"]) for look in looks], [2, 2, 2])
            stream.send_signal(signal.SIGTERM)
            stream.wait(timeout=SOON_S)

    def test_an_interval_that_would_spin_is_refused(self):
        refused = self.cluster.muster("top", "--interval", "0s", check=False)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("expected 0.1s or more", refused.stderr)

    def test_a_coordinator_that_is_killed_is_the_first_problem_until_it_is_back(self):
        terminal = self.top()
        terminal.wait_for("finetune", "q quit")
        kill(self.cluster.coordinator_pid())
        try:
            text = terminal.wait_for("! no answer for ", "the view is out of date", "finetune")
            self.assertEqual(text.count("next: "), 1, text)
            self.assertIn(f"next: muster up --dir {self.cluster.dir}", text)
            self.assertNotIn("?", text.split("NODES")[0].replace("(?)", ""), text)
            self.assert_fits(terminal)
        finally:
            self.cluster.up()
            self.cluster.wait_until_ready()
        wait_until(lambda: "no answer" not in terminal.text(), "an answer is shown", SOON_S)
        terminal.type("q")
        self.assertEqual(terminal.end(), 0)

    def test_attach_keeps_state_and_time_to_go_in_every_width(self):
        terminal = Terminal(self, "attach", self.job, "--dir", self.cluster.dir)
        terminal.wait_for("eta ", "running")
        self.assert_last_line_fits(terminal)
        terminal.resize(45, 24)
        mark = len(terminal.raw)
        wait_until(lambda: terminal.text() and self.live_lines(terminal.raw[mark:])[-1:]
                   and len(self.live_lines(terminal.raw[mark:])[-1]) < 45, "a narrower line", SOON_S)
        self.assertRegex(self.live_lines(terminal.raw[mark:])[-1], r"step \d+/100000 .*eta .* running$")
        terminal.type("\x03")
        terminal.end()

    @staticmethod
    def live_lines(raw):
        return re.findall(r"\r([^\r\n\x1b]+)\x1b\[K", raw)

    def assert_last_line_fits(self, terminal):
        self.assertLess(len(self.live_lines(terminal.raw)[-1]), terminal.size[0])


if __name__ == "__main__":
    unittest.main()
