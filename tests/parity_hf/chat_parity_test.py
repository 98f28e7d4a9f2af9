"""Texts of random conversations, CONVERSATIONS of each family, drawn anew in every run (drawn.py), against Python's
jinja2 set up as transformers does. No difference is allowed.

Fails, and does not skip, where the package is missing: tests/run --label peer installs it.
"""

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

TEMPLATES = ROOT / "trainer" / "text" / "chat" / "testdata"
CONVERSATIONS = 200
FAMILIES = 10
LIMIT_S = 120
SHOWN = 3  # differences


def checked(*command):
    done = subprocess.run([str(part) for part in command], timeout=LIMIT_S, capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def lines_of(text):
    """Of JSON, so that no other character than a line feed ends one."""
    return [json.loads(line) for line in text.split("\n") if line]


def differences(rows, ours):
    for row, answer in zip(rows, ours, strict=True):
        reason = answer.pop("reason", None)
        theirs = {key: value for key, value in row.items() if key != "conversation"}
        if theirs != answer:
            yield {**row, "ours": answer, "reason": reason}


class ChatParity(unittest.TestCase):
    def test_no_text_differs(self):
        peer.require()
        with tempfile.TemporaryDirectory(prefix="muster-chats-") as temp:
            checked(peer.PYTHON, HERE / "reference_chats.py", "--count", CONVERSATIONS, "--seed",
                    drawn.number("chats"), "--out", temp)
            files = sorted(pathlib.Path(temp).iterdir())
            self.assertEqual(len(files), FAMILIES)
            for file in files:
                with self.subTest(template=file.name):
                    self.compare(file)

    def compare(self, file):
        name = file.name.removesuffix(".family.jsonl")
        rows = lines_of(file.read_text(encoding="utf-8"))
        self.assertEqual(len(rows), CONVERSATIONS)
        self.assertGreater(sum("text" in row for row in rows), CONVERSATIONS * 3 // 4)
        ours = checked(BIN.parent / "tests" / "render_rows", TEMPLATES / f"{name}.jinja", file)
        found = list(differences(rows, lines_of(ours)))
        shown = "\n".join(json.dumps(each) for each in found[:SHOWN])
        self.assertEqual(len(found), 0, f"{len(found)} of {len(rows)} differ:\n{shown}")


if __name__ == "__main__":
    unittest.main()
