#!/usr/bin/env python3
"""Man pages of the programs and of each of their commands, such as muster-submit(1), out of their --help.

  manuals.py PROGRAMS OUT     writes OUT/PROGRAM/NAME.1 for the programs in the folder PROGRAMS

They bear the date SOURCE_DATE_EPOCH, by default today's.
"""

import os
import pathlib
import re
import sys
import time

import programs

# A flag or command, and what is said of it, in the same line or in the next one, further in. A name that just fits has one space.
ENTRY = re.compile(r"^ +(?:(-\S+ [A-Z:=]+) (?=[^ .])|(\S.*?)(?: {2,}|\n {10,}))(\S.*)$", re.M)
GROUP = re.compile(r"^\[Option Group: .*\]\n\s*\n  \[(.*)\]\n  Options:$", re.M)
SECTIONS = {"Positionals": "ARGUMENTS", "Options": "OPTIONS", "Subcommands": "COMMANDS", "Examples": "EXAMPLES"}
PROGRAMS = [name for names in programs.PAGES.values() for name in names]


def page_name(words):
    return "-".join(word.strip("-") for word in words)


def roff(text):
    """As text: dashes as on a keyboard, and no line that is a request."""
    return re.sub(r"(?m)^(?=[.'])", r"\\&", text.replace("\\", "\\e").replace("-", "\\-"))


def reference(name):
    return f".BR {roff(name)} (1)"


def entries(title, lines, name):
    """A list of flags or commands, or lines that stay as they are."""
    found = [(fits or given, said) for fits, given, said in ENTRY.findall(lines)]
    if not found:
        return [".nf", roff(lines.strip("\n")), ".fi"]
    head = (lambda given: reference(f"{name}-{given}")) if title == "Subcommands" else (lambda given: f".B {roff(given)}")
    return [line for given, said in found for line in (".TP", head(given), roff(said))]


def body(text, name):
    """What follows the usage: titles with lines further in, and paragraphs."""
    for part in re.split(r"(?m)^(?=\S)", GROUP.sub(r"\1:", text)):
        title, _, lines = part.partition("\n")
        if title.endswith(":") and lines.strip():
            title = title.rstrip(":")
            yield from ([f".SH {SECTIONS[title]}"] if title in SECTIONS else [".PP", roff(title) + ":"])
            yield from entries(title, lines, name)
        elif part.strip():
            yield from (".PP", roff(part.strip()))


def manual(words, text, version, related):
    name, called = page_name(words), " ".join(words)
    summary, _, rest = text.strip().partition("\nUsage: ")
    usage, _, rest = rest.partition("\n")
    summary = " ".join(summary.split()).rstrip(".")
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    lines = [f'.TH {roff(name.upper())} 1 "{date}" "Muster {version}" "User Commands"', ".nh", ".ad l", ".SH NAME",
             f"{roff(name)} \\- {roff(summary[0].lower() + summary[1:])}", ".SH SYNOPSIS",
             f".B {roff(called)}", roff(usage.removeprefix(called).strip()), *body(rest, name), ".SH SEE ALSO",
             *(reference(other) + "," * (other != related[-1]) for other in related)]
    return "\n".join(line for line in lines if line) + "\n"


def manuals(folder):
    """(program, name of the page, text) from the folder of the programs."""
    tops = [page_name(words) for words in PROGRAMS]
    for program, *flags in PROGRAMS:
        path = str(folder / program)
        version = programs.run(path, "--version").split()[1]
        for words, text in programs.commands(path, *flags):
            words = (program, *words)
            name = page_name(words)
            related = [other for other in tops if other != name] if name in tops else [page_name(words[:-1])]
            yield program, name, manual(words, text, version, related)


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    for program, name, text in manuals(pathlib.Path(sys.argv[1])):
        file = pathlib.Path(sys.argv[2]) / program / f"{name}.1"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
