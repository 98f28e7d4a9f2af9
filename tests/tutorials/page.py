"""A tutorial as its commands, their outputs, and the files that it has its reader write.

A fenced block ```console has lines `$ COMMAND`, which go on in the next line behind a `\\`, and below each what it prints.
Comments directly before the fence are about the block:

  <!-- varies: seconds pids -->   numbers of these kinds (VARIES) differ from run to run; runs of blanks then count as one
  <!-- exits: 10 -->              the exit code of each command of the block, else 0
  <!-- file: job.yaml -->         before any other fenced block: the reader writes it to this file

A line `...` of an output stands for any number of lines; the page must say so (LEFT_OUT). No other fenced blocks are
allowed, so that a page shows nothing that the test does not run.
"""

import dataclasses
import difflib
import pathlib
import re

LEFT_OUT = "`...` stands for lines that are left out"
ROOT = "~"  # stands for the directory of the run, which is also HOME
# What may differ between two runs of a page: numbers with their unit, times, and names that are drawn at random.
VARIES = {
    "addresses": r"\b127\.0\.0\.1:\d+",
    "counts": r"^\d+$",
    "dates": r"\b\d{4}-\d\d-\d\d\b",
    "ids": r"\b[0-9a-f]{10}\b",
    "fingerprints": r"\b[0-9a-f]{64}\b",
    "keys": r"\b[0-9a-f]{12}\b",
    "losses": r"\b\d+\.\d{3,}\b",
    "nodes": r"(?<=\bn)\d\b",
    "operations": r"(?<=operation )\d+",
    "percents": r"\b\d+(?:\.\d+)? %",
    "pids": r"(?<=pid )\d+|(?<=  )\d{3,7}(?=  |$)",
    "rates": r"\b[\d,]+ (?:tokens|tok)/s",
    "seconds": r"\b(?:\d+m )?\d+(?:\.\d+)? ?m?s\b|\b\d+:\d\d:\d\d\b",
    "sizes": r"\b\d+(?:\.\d+)? [kMG]i?B\b",
    "steps": r"(?<=step )\d+|\b\d+ steps?(?= to do again)",
    "times": r"\b\d\d:\d\d:\d\d(?: UTC)?",
}
COMMENT = re.compile(r"<!-- (varies|exits|file): (.*) -->")


class PageError(Exception):
    """A page that is not written as this file's head says."""


@dataclasses.dataclass
class Command:
    text: str  # as bash reads it
    shown: list  # the lines of the page with it
    output: list  # the lines below it

    def lines(self):
        return [*self.shown, *self.output]


@dataclasses.dataclass
class Block:
    """A fenced block; `file` or `commands`."""
    first: int  # the line of its opening fence, from 0
    last: int  # that of its closing fence
    varies: list
    exits: int
    file: str
    body: list
    commands: list


class Page:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.lines = self.path.read_text(encoding="utf-8").splitlines()
        self.blocks = []
        self._read()

    def _read(self):
        number = 0
        while number < len(self.lines):
            if not self.lines[number].startswith("```"):
                number += 1
                continue
            last = next((n for n in range(number + 1, len(self.lines)) if self.lines[n] == "```"), None)
            if last is None:
                raise PageError(f"{self.path.name}:{number + 1}: this block has no end")
            self.blocks.append(self._block(number, last))
            number = last + 1

    def _block(self, first, last):
        said, above = {}, first - 1
        while above >= 0 and (comment := COMMENT.fullmatch(self.lines[above])):
            said[comment[1]] = comment[2]
            above -= 1
        where = f"{self.path.name}:{first + 1}"
        block = Block(first, last, said.get("varies", "").split(), int(said.get("exits", 0)), said.get("file", ""),
                      self.lines[first + 1:last], [])
        if unknown := set(block.varies) - set(VARIES):
            raise PageError(f"{where}: page.py does not know what varies: {', '.join(sorted(unknown))}")
        if self.lines[first] == "```console":
            block.commands = read_commands(block.body, where)
        elif not block.file:
            raise PageError(f"{where}: neither ```console nor a file")
        if any(line == "..." for command in block.commands for line in command.output) and LEFT_OUT not in self.prose():
            raise PageError(f"{where}: `...` in an output, and the page does not say: {LEFT_OUT}")
        return block

    def prose(self):
        """What is outside of fenced blocks and comments, in one line."""
        text, inside = [], False
        for line in self.lines:
            if line.startswith("```"):
                inside = not inside
            elif not inside and not COMMENT.fullmatch(line):
                text.append(line)
        return " ".join(" ".join(text).split())

    def write(self):
        """With the outputs that its commands have now."""
        lines, done = [], 0
        for block in self.blocks:
            lines += self.lines[done:block.first + 1]
            lines += [line for command in block.commands for line in command.lines()] or block.body
            done = block.last
        self.path.write_text("\n".join([*lines, *self.lines[done:]]) + "\n", encoding="utf-8")


def read_commands(body, where):
    commands = []
    for line in body:
        if commands and commands[-1].text.endswith("\\") and not commands[-1].output:
            commands[-1].text += "\n" + line
            commands[-1].shown.append(line)
        elif line.startswith("$ "):
            commands.append(Command(line[2:], [line], []))
        elif commands:
            commands[-1].output.append(line)
        else:
            raise PageError(f"{where}: a block begins with `$ ` and a command")
    return commands


def shape(line, varies):
    """What must be equal between the page and a run."""
    if not varies:
        return line
    for name in varies:
        line = re.sub(VARIES[name], f"<{name}>", line)
    return " ".join(line.split())


def merge(expected, actual, varies):
    """The actual lines, with `...` where the page has it; None where they are not what is expected."""
    parts = [[]]
    for line in expected:
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    seen = [shape(line, varies) for line in actual]
    merged, at = [], 0
    for index, part in enumerate(parts):
        wanted = [shape(line, varies) for line in part]
        places = [at] if index == 0 else range(at, len(seen) - len(wanted) + 1)
        if index == len(parts) - 1:
            places = [place for place in places if place == len(seen) - len(wanted)]
        place = next((place for place in places if seen[place:place + len(wanted)] == wanted), None)
        if place is None:
            return None
        merged += (["..."] if index else []) + actual[place:place + len(wanted)]
        at = place + len(wanted)
    return merged


def difference(expected, actual, varies):
    """A diff without what may differ."""
    return "\n".join(difflib.unified_diff([shape(line, varies) for line in expected],
                                          [shape(line, varies) for line in actual],
                                          "the page", "this run", lineterm="", n=2))
