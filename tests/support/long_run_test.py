"""A long test's row holds its seeds, its commit and what came of it, whatever the program printed."""

import pathlib
import subprocess
import tempfile
import unittest

import long_run


class LongRunTest(unittest.TestCase):
    def row(self, output, status=0):
        cells = long_run.row_of(output, status, 90 * 60, "abc123").strip("|\n ").split(" | ")
        return cells[1], *cells[3:]

    def test_one_seed(self):
        self.assertEqual(self.row('{"seed": 7, "faults": 200, "violations": [], "recovery": {}}'),
                         ("abc123", "7", "90", 'passed: `{"faults": 200, "violations": []}`'))

    def test_a_range_of_seeds(self):
        self.assertEqual(self.row('{"first_seed": 1, "seeds": 2000, "violations": {"a": 1}}', 1),
                         ("abc123", "1 to 2000", "90", 'failed with status 1: `{"violations": {"a": 1}}`'))

    def test_a_program_that_ended_without_a_result(self):
        self.assertEqual(self.row("Traceback", 1),
                         ("abc123", "unknown", "90", "failed with status 1: `no result was printed`"))

    def test_rows_of_the_form_before_make_no_commit_dirty(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs" / "measurements").mkdir(parents=True)
            rows, code = root / "docs" / "measurements" / "chaos.md", root / "code"
            for file in (rows, code):
                file.write_text("1", encoding="utf-8")
            identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
            for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "one"]):
                subprocess.run(["git", *command], cwd=root, check=True)
            revision = long_run.commit(root)
            rows.write_text("2", encoding="utf-8")
            self.assertEqual(long_run.commit(root), revision)
            code.write_text("2", encoding="utf-8")
            self.assertEqual(long_run.commit(root), f"{revision}-dirty")


if __name__ == "__main__":
    unittest.main()
