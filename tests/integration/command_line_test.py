"""What users type first: --version and --help of each program, and what they must not look like."""

import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, ROOT, run  # noqa: E402

PROGRAMS = ("muster", "muster-coordinator", "muster-worker", "muster-guardian", "muster-launcher", "muster-trainer")
# Names of C++ types and of CLI11's checks.
RAW = re.compile(r"\b(INT|UINT|FLOAT|BOOLEAN|POSITIVE|NONNEGATIVE|UNIT)\b|\(Env:|\{\w| in \[[0-9]|Excludes:|Needs:")


def commands(program, *words):
    """Every command of a program, by what its help lists."""
    text = run(program, *words, "--help").stdout
    yield words, text
    listed = re.search(r"^Subcommands:\n((?:  .*\n|\n)*)", text, re.M)
    for name in re.findall(r"^  ([a-z][a-z-]*)", listed.group(1), re.M) if listed else ():
        yield from commands(program, *words, name)


class Versions(unittest.TestCase):
    def test_every_program_prints_its_version_and_commit(self):
        texts = set()
        for program in PROGRAMS:
            done = run(program, "--version")
            self.assertRegex(done.stdout, rf"^{program} \d+\.\d+\.\d+(-[a-z0-9.]+)?( \(commit [0-9a-zA-Z._+-]+\))?\n$")
            self.assertEqual(done.stderr, "")
            texts.add(done.stdout.split(" ", 1)[1])
        self.assertEqual(len(texts), 1, f"programs of different builds: {texts}")
        self.assertEqual(run("muster-worker", "--auto", "--version").stdout, run("muster-worker", "--version").stdout)

    def test_the_commit_is_the_one_that_was_built(self):
        git = subprocess.run(["git", "-C", ROOT, "-c", f"safe.directory={ROOT}", "cat-file", "-e",
                              (re.findall(r"commit (\w+)", run("muster", "--version").stdout) or ["none"])[0]],
                             capture_output=True, timeout=20, check=False)
        if not (ROOT / ".git").exists():
            self.skipTest("these sources have no git files")
        self.assertEqual(git.returncode, 0, "no commit of these sources")


class Help(unittest.TestCase):
    def test_every_command_explains_itself_in_words(self):
        found = 0
        for program in ("muster", "muster-coordinator", "muster-worker", "muster-trainer"):
            for words, text in commands(program):
                self.assertIsNone(RAW.search(text), f"{program} {' '.join(words)} --help:\n{text}")
                found += 1
        self.assertGreater(found, 45)
        text = run("muster-worker", "--auto", "--help").stdout
        self.assertIsNone(RAW.search(text), text)

    def test_a_command_names_the_options_that_all_take(self):
        for words in (("get",), ("certs", "issue"), ("slurm", "status")):
            text = run("muster", *words, "--help").stdout
            self.assertRegex(text, r"Global options \(muster --help\): .*--dir.*--output", words)
        self.assertIn("place them before the command", run("muster", "slurm", "submit", "--help").stdout)
        # As its help says.
        done = run("muster", "--dir", "/nowhere/x", "slurm", "render", "/nowhere/job.yaml", check=False)
        self.assertIn("/nowhere/job.yaml", done.stderr)

    def test_the_worker_names_auto(self):
        self.assertIn("srun muster-worker --auto --job FILE", run("muster-worker", "--help").stdout)

    def test_run_lists_every_flag_of_torchrun_that_it_knows(self):
        table = (ROOT / "common" / "job_spec" / "torchrun_table.cc").read_text(encoding="utf-8")
        names = re.findall(r'\.name = "([a-z-]+)"', table)
        self.assertGreater(len(names), 20)
        text = run("muster", "run", "--help").stdout
        for name in names:
            self.assertIn(f"--{name} ", text)

    def test_without_a_command_the_help_is_an_error(self):
        for program in ("muster", "muster-trainer"):
            self.assertEqual(run(program, check=False).returncode, 2)
        self.assertIn("Subcommands:", run("muster", check=False).stderr)


class Messages(unittest.TestCase):
    def test_standalone_with_two_nodes_says_what_to_do(self):
        done = run("muster", "run", "--print-job", "--standalone", "--nnodes", "2", "train.py", check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("leave --standalone out and name the cluster: muster run --dir DIR --nnodes 2", done.stderr)


if __name__ == "__main__":
    unittest.main()
