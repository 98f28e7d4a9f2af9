"""The documentation as a site: each link and anchor leads somewhere, and no page asks another server for anything."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
PYTHON = CACHE / "muster" / "docs" / "bin" / "python"
# What of a page is fetched when it is opened.
FETCHED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?((?:https?:)?//[^\"'> ]+)"
                     r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*\bhref=[\"']?((?:https?:)?//[^\"'> ]+)")
FETCHED_BY_STYLE = re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"') ]+)")


def build(root, out):
    # Tests fail, and do not skip, without it: tests/run installs it.
    if not os.access(PYTHON, os.X_OK):
        raise AssertionError("run deploy/install-deps --docs")
    return subprocess.run([PYTHON, "-B", ROOT / "deploy" / "site.py", root, out], capture_output=True, text=True,
                          timeout=120, check=False)


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory(prefix="muster-docs-")
        cls.addClassCleanup(temp.cleanup)
        cls.folder = pathlib.Path(temp.name)
        cls.done = build(ROOT, cls.folder)
        cls.site = cls.folder / "site"

    def test_1_each_link_and_anchor_leads_somewhere_and_each_page_has_its_place(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        self.assertEqual(len(list(self.site.rglob("*.html"))), len(pages) + 3)  # CONTRIBUTING, CHANGELOG, 404

    def test_2_nothing_is_asked_of_another_server(self):
        for path in self.site.rglob("*"):
            pattern = {".html": FETCHED, ".css": FETCHED_BY_STYLE}.get(path.suffix)
            if pattern:
                found = [match[0] for match in pattern.finditer(path.read_text(encoding="utf-8"))]
                self.assertEqual(found, [], path.name)

    def test_3_the_search_finds_a_key_of_the_job_file(self):
        index = json.loads((self.site / "search" / "search_index.json").read_text(encoding="utf-8"))
        found = {doc["location"].partition("#")[0] for doc in index["docs"] if "share_spares" in doc["text"]}
        self.assertIn("docs/job-file.html", found)

    def test_4_what_leads_nowhere_is_reported(self):
        tree = self.folder / "tree"
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs", "deploy", "configs", "slurm", "tests"):
            path = ROOT / name
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, self._place(tree, name))
        with open(tree / "README.md", "a", encoding="utf-8") as readme:
            readme.write("\n[no page](docs/nowhere.md) and [no heading](docs/recovery.md#no-such-heading)\n")
        (tree / "docs" / "unplaced.md").write_text("# A page without a place\n", encoding="utf-8")
        done = build(tree, self.folder / "out")
        self.assertNotEqual(done.returncode, 0)
        for words in ("docs/nowhere.md", "#no-such-heading", "docs/unplaced.md"):
            self.assertIn(words, done.stderr)

    @staticmethod
    def _place(tree, name):
        tree.mkdir(exist_ok=True)
        return tree / name


if __name__ == "__main__":
    unittest.main()
