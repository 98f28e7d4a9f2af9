#!/usr/bin/env python3
"""Applies renames.txt, the names that docs/glossary.md replaced, to a tree.

  rename.py [--commit] [ROOT]    changes the files that git tracks; prints each rule that changed something.
                                 --commit makes one commit per row of the glossary
"""

import fnmatch
import pathlib
import re
import subprocess
import sys

RULES = pathlib.Path(__file__).parent / "renames.txt"
# They speak of old names, or hold other people's text.
LEFT_ALONE = ("tests/lint/*", "docs/glossary.md", "CHANGELOG.md", "configs/data/*", "*/testdata/*", "tests/golden/*",
              "cli/migrate/*")
TEXT = (".cc", ".h", ".cu", ".cuh", ".proto", ".py", ".sh", ".cmake", ".txt", ".md", ".yaml", ".yml", ".json",
        ".js", ".css", ".html", ".sbatch", ".service", "")


class Rule:
    """One line of renames.txt: what it matches, by what it is replaced, and where."""

    def __init__(self, line, places):
        self.line, self.places = line, places
        self.is_file = line.startswith("file ")
        old, new = line.removeprefix("file ").split(" -> ")
        self.new, _, self.prose = (part.strip(" ") for part in new.partition(" | "))
        if self.is_file:
            # A stem in file names and in what names them: includes, CMake lists, documents.
            self.old = old
            self.pattern = re.compile(rf"(?<![A-Za-z0-9_]){re.escape(old)}"
                                      r"(?=((_[a-z_]*)?(test|testing|for_test))?(\.(cc|h|cu|py|md)\b))")
        elif old.endswith("~"):
            self.pattern = re.compile(old[:-1])
        else:
            self.pattern = re.compile(rf"(?<!\w)(?:{old})(?!\w)")
        # What every match contains: most texts do not, and a search for it is quick.
        self.core = max(re.findall(r"\w+", re.sub(r"\(\?.*?\)|\[.*?\]|\\.|s\?", " ", old)), key=len)

    def replaced(self, name, text, match):
        """The new name for a match: what comments and documents say may differ from code."""
        line = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
        if self.prose and (name.endswith(".md") or "//" in line):
            return match[0] if self.prose == "=" else self.prose
        return match.expand(self.new)

    def replace(self, name, text):
        return self.pattern.sub(lambda match: self.replaced(name, text, match), text)

    def holds_in(self, name):
        return not self.places or any(name == p or name.startswith(p + "/") for p in self.places)


def read_rules():
    """{title: [Rule]}, in the order of the file."""
    rows, title, places = {}, None, ()
    for line in RULES.read_text().splitlines():
        if line.startswith("#"):
            continue
        if line.startswith("["):
            title, places = line[1:-1], ()
        elif not line:
            places = ()
        elif line.startswith("in "):
            places = tuple(line.split()[1:])
        else:
            rows.setdefault(title, []).append(Rule(line, places))
    return rows


def left_alone(name):
    return any(fnmatch.fnmatch(name, pattern) for pattern in LEFT_ALONE)


def git(root, *arguments):
    return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True).stdout


class Tree:
    """The texts that git tracks, read once and written once."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.texts = {}
        for name in git(root, "ls-files", "-z").split("\0"):
            path = self.root / name
            if name and not left_alone(name) and path.suffix in TEXT and path.is_file() and not path.is_symlink():
                try:
                    self.texts[name] = path.read_text()
                except UnicodeDecodeError:
                    pass
        self.changed = set()

    def apply(self, rule):
        """How many files it changed."""
        changed = 0
        for name in [n for n in self.texts if rule.holds_in(n)]:
            if rule.core not in self.texts[name] and rule.core not in name:
                continue
            text = rule.replace(name, self.texts[name])
            if text != self.texts[name]:
                self.texts[name] = text
                self.changed.add(name)
                changed += 1
            path = pathlib.PurePath(name)
            if rule.is_file and rule.pattern.match(path.name):
                target = str(path.with_name(rule.pattern.sub(rule.new, path.name)))
                git(self.root, "mv", name, target)
                self.texts[target] = self.texts.pop(name)
                self.changed = {target if n == name else n for n in self.changed}
                changed += 1
        return changed

    def write(self):
        for name in self.changed:
            (self.root / name).write_text(self.texts[name])
        self.changed = set()


def main(arguments):
    commit = "--commit" in arguments
    roots = [a for a in arguments if a != "--commit"]
    if len(roots) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(roots[0] if roots else RULES.parents[2]).resolve()
    tree = Tree(root)
    for title, rules in read_rules().items():
        total = 0
        for rule in rules:
            if changed := tree.apply(rule):
                total += changed
                print(f"{title}: {rule.line} ({changed} files)")
        if commit and total:
            tree.write()
            git(root, "commit", "-qam", f"Rename to the glossary's words: {title}")
    tree.write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
