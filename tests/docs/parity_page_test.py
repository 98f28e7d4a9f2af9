"""docs/reference/parity.md has a figure within its limit for every architecture, kind of adapters, precision and strategy that
tests/parity_hf/parity_table.py names."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "parity_hf"))
import parity_table  # noqa: E402
from parity_table import ADAPTERS, ARCHITECTURES, COLUMNS, LIMITS, PAGE, RULER  # noqa: E402


class ParityPage(unittest.TestCase):
    def setUp(self):
        self.figures = parity_table.figures_of(PAGE.read_text(encoding="utf-8"))

    def test_no_cell_is_missing(self):
        rows = [(architecture, adapters) for architecture in ARCHITECTURES for adapters in ADAPTERS]
        wanted = {(*row, *column) for row in rows for column in (*COLUMNS, RULER)}
        self.assertGreaterEqual(len(rows) * len(COLUMNS), 200)
        self.assertEqual(set(self.figures), wanted, "run tests/parity_hf/parity_table_test.py --write")

    def test_each_figure_is_within_its_limit(self):
        for cell, figure in self.figures.items():
            self.assertLessEqual(float(figure), LIMITS[cell[2]], cell)

    def test_the_page_is_as_it_is_written(self):
        self.assertEqual(PAGE.read_text(encoding="utf-8"), parity_table.page_of(self.figures))

    def test_what_is_no_figure_is_missing(self):
        cell = next(iter(self.figures))
        for text in ("", "nan", "inf", "0.1"):
            self.assertNotIn(cell, parity_table.figures_of(parity_table.page_of({**self.figures, cell: text})))


if __name__ == "__main__":
    unittest.main()
