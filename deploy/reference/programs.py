"""docs/reference/cli.md and programs.md out of the programs' --help."""

import re
import subprocess

PAGES = {"cli": (("muster",),),
         "programs": (("muster-coordinator",), ("muster-worker",), ("muster-worker", "--auto"), ("muster-trainer",))}
TITLES = {"cli": "The command line", "programs": "Daemons and trainer"}


def run(*words):
    # A terminal's width and colours are not of the text.
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60,
                          env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "NO_COLOR": "1"}).stdout


def commands(program, *words):
    """(words, help) of a program and of each command that its help lists."""
    text = run(program, *words, "--help")
    yield words, text
    listed = re.search(r"^Subcommands:\n((?:  .*\n|\n)*)", text, re.M)
    for name in re.findall(r"^  ([a-z][a-z-]*)", listed.group(1), re.M) if listed else ():
        yield from commands(program, *words, name)


def pages(programs):
    """{name: text} from the folder of the programs."""
    made = {}
    for page, names in PAGES.items():
        text = f"# {TITLES[page]}\n\n"
        for name, *flags in names:
            for words, said in commands(str(programs / name), *flags):
                title = " ".join((name, *words))
                text += f"{'#' * min(2 + len(words), 4)} {title}\n\n```\n{said.strip()}\n```\n\n"
        made[page] = text.rstrip() + "\n"
    return made
