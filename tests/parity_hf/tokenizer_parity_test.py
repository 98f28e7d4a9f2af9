"""Token ids and decoded texts against the Python packages `tokenizers` and `sentencepiece`.

Small tokenizers of every kind that models come with are trained on this repository's own pages, and
both sides encode the same adversarial texts, TEXTS of each kind, drawn anew in every run (drawn.py). No difference is
allowed.

Fails, and does not skip, where the packages are missing: tests/run --label peer installs them.
"""

import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import drawn  # noqa: E402
import peer  # noqa: E402
from cluster import BIN, ROOT  # noqa: E402

TEXTS = 10_000
LIMIT_S = 600
KINDS = 22
SHOWN = 3  # differences


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class TokenizerParity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        peer.require()
        temp = tempfile.TemporaryDirectory(prefix="muster-tokenizers-")
        cls.addClassCleanup(temp.cleanup)
        cls.root = pathlib.Path(temp.name)
        corpus = cls.root / "corpus.txt"
        pages = [ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
        corpus.write_text("".join(page.read_text(encoding="utf-8") for page in pages),
                          encoding="utf-8")
        cls.kinds = cls.root / "kinds"
        cls.kinds.mkdir()
        done = subprocess.run(
            [peer.PYTHON, HERE / "reference_tokenizers.py", "--corpus", corpus, "--texts",
             str(TEXTS), "--seed", str(drawn.number("texts")), "--out", cls.kinds], timeout=LIMIT_S,
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stderr)

    def ours(self, folder):
        answers = folder / "ours.jsonl"
        with open(answers, "wb") as out:
            done = subprocess.run(
                [BIN / "muster-trainer", "tokenize", "--model", folder, folder / "rows.jsonl"],
                stdout=out, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return lines_of(answers)

    def differences(self, folder):
        rows, reference, ours = (lines_of(folder / "rows.jsonl"),
                                 lines_of(folder / "reference.jsonl"), self.ours(folder))
        self.assertEqual(len(rows), len(ours))
        self.assertEqual(len(rows), len(reference))
        self.assertGreater(len(rows), TEXTS / 2)
        for row, theirs, answer in zip(rows, reference, ours):
            if theirs["decoded"] is None:
                answer["decoded"] = None
            if theirs != answer:
                yield {"text": row["text"], "theirs": theirs, "ours": answer}

    def test_ids_and_texts_are_those_of_the_python_packages(self):
        folders = sorted(self.kinds.iterdir())
        self.assertEqual(len(folders), KINDS)
        for folder in folders:
            with self.subTest(kind=folder.name):
                found = list(self.differences(folder))
                shown = "\n".join(map(json.dumps, itertools.islice(found, SHOWN)))
                self.assertEqual(len(found), 0, f"{len(found)} of {TEXTS} differ:\n{shown}")


if __name__ == "__main__":
    unittest.main()
