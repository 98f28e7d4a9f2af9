"""configs/job.schema.json and the parser take the same job files; common/job_spec/job_schema_test.cc compares single keys."""

import ast
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["MUSTER_BIN_DIR"])
sys.path.insert(0, str(ROOT / "tests" / "support"))

from cluster import train_job  # noqa: E402

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
PYTHON = CACHE / "muster" / "docs" / "bin" / "python"
VALIDATE = pathlib.Path(__file__).resolve().parent / "validate.py"
PARSE_TEST = ROOT / "common" / "job_spec" / "parse_test.cc"
BAD_USAGE = 2

# What the parser refuses and a schema cannot: it compares two keys, or works out an amount.
BEYOND_A_SCHEMA = {"GpusOfANode", "MemoryBeyondAll", "MinNodes", "MinNodesAboveNodes", "SecretTwice", "TimeLimit", "TwoAtOnePlace"}


def constants(text):
    """The macros of parse_test.cc that are texts."""
    joined = re.sub(r"\\\n", " ", text)
    return {name: "".join(ast.literal_eval(each) for each in re.findall(r'"(?:[^"\\]|\\.)*"', value))
            for name, value in re.findall(r"#define (\w+)(.*)", joined)}


def bad_cases():
    """{name: job file} of the table of bad files of the parser's own test."""
    text = PARSE_TEST.read_text(encoding="utf-8")
    macros, cases = constants(text), {}
    for name, body in re.findall(r'\{"(\w+)",\s*((?:(?:[A-Z_]+|"(?:[^"\\]|\\.)*")\s*)+),\s*"job\.yaml', text):
        words = re.findall(r'[A-Z_]+|"(?:[^"\\]|\\.)*"', body)
        cases[name] = "".join(ast.literal_eval(word) if word.startswith('"') else macros[word] for word in words)
    del cases["NotUtf8"]  # bytes that are no text
    return cases


def good_files():
    """{name: job file} of all examples: those of configs, of pages, and of tests."""
    files = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
             for path in sorted((ROOT / "configs").glob("*/*.yaml"))}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for number, block in enumerate(re.findall(r"^```yaml\n((?:#[^\n]*\n)?name: .*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)):
            files[f"{page.name} {number}"] = block
    for path in sorted((ROOT / "common" / "job_spec").glob("*_test.cc")):
        for number, text in enumerate(re.findall(r'R"\((name: .*?)\)"', path.read_text(encoding="utf-8"), re.S)):
            files[f"{path.name} {number}"] = text
    files["cluster.py"] = json.dumps(train_job("model", "rows.jsonl", "out"))
    return files


def refusals(files):
    """What the schema has against each; empty: nothing. JSON of one more process, whose Python has the validator."""
    if not os.access(PYTHON, os.X_OK):
        raise AssertionError("run deploy/install-deps --docs")
    done = subprocess.run([PYTHON, "-B", VALIDATE, ROOT / "configs" / "job.schema.json"], input=json.dumps(list(files.values())),
                          capture_output=True, text=True, timeout=100, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return dict(zip(files, json.loads(done.stdout)))


class JobSchema(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory(prefix="muster-schema-")
        self.addCleanup(self.temp.cleanup)

    def parsed(self, text):
        """Nothing, or what the parser has against a file. Without a cluster a good one is of no further use."""
        path = pathlib.Path(self.temp.name) / "job.yaml"
        path.write_text(text, encoding="utf-8")
        done = subprocess.run([BIN / "muster", "--dir", self.temp.name, "submit", path], capture_output=True, text=True,
                              timeout=20, check=False)
        self.assertIn(done.returncode, (BAD_USAGE, 5), done.stderr)
        return done.stderr if done.returncode == BAD_USAGE else ""

    def test_every_example_is_taken_by_both(self):
        files = good_files()
        self.assertGreater(len(files), 15)
        for name, refusal in refusals(files).items():
            with self.subTest(file=name):
                self.assertEqual(self.parsed(files[name]), "")
                self.assertEqual(refusal, "")

    def test_bad_files_are_refused_by_both(self):
        cases = bad_cases()
        self.assertGreater(len(cases), 60)
        for name, refusal in refusals(cases).items():
            with self.subTest(case=name):
                self.assertNotEqual(self.parsed(cases[name]), "")
                self.assertEqual(refusal == "", name in BEYOND_A_SCHEMA, refusal or cases[name])


if __name__ == "__main__":
    unittest.main()
