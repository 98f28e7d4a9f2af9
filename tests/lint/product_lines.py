#!/usr/bin/env python3
"""Lines of product code: without comments, blank lines and tests.

  product_lines.py [ROOT]     prints them by top folder, and by folder of trainer/

Counted are .h, .cc, .cu and .proto below the folders of the product. Tests are *_test.*, testing/ folders, and what is named for
them (*_testing.*, *_for_test.*).
"""

import pathlib
import re
import sys

FOLDERS = ("cli", "common", "coordinator", "proto", "trainer", "worker")
SUFFIXES = (".h", ".cc", ".cu", ".proto")
TESTS = re.compile(r"/testing/|/testing\.|_test\.|_testing\.|_for_test\.")
COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/|//[^\n]*', re.DOTALL)


def lines(text):
    text = COMMENT.sub(lambda match: match.group(0) if match.group(0).startswith('"') else "", text)
    return sum(1 for line in text.splitlines() if line.strip())


def count(root, folder):
    return sum(lines(path.read_text(encoding="utf-8")) for path in (root / folder).rglob("*")
               if path.suffix in SUFFIXES and not TESTS.search(path.relative_to(root).as_posix()))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    tops = {folder: count(root, folder) for folder in FOLDERS if (root / folder).is_dir()}
    for folder, number in tops.items():
        print(f"{number:7} {folder}")
    print(f"{sum(tops.values()):7} all")
    for folder in sorted(path.name for path in (root / "trainer").iterdir() if path.is_dir()):
        print(f"{count(root, f'trainer/{folder}'):7} trainer/{folder}")


if __name__ == "__main__":
    main()
