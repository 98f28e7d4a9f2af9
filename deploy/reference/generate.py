#!/usr/bin/env python3
"""Writes the generated reference: docs/reference, and the generated sections of docs/job-file.md and docs/metrics.md.

  generate.py [--programs DIR] [--check]
    --programs DIR   the programs of a build, for the pages of their --help and of their plans; without it these stay as they are
    --check          writes nothing, and says which file is not what its source says
"""

import argparse
import difflib
import json
import pathlib
import re
import sys

import exit_codes
import job_file
import metrics
import programs
import protocol
import recipes
import symptoms

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
MARK = "<!-- Made by deploy/reference/generate.py; change its source. -->\n\n"
SECTION = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end of generated -->)", re.S)


def with_sections(page, texts):
    """The page with the text of each generated section in its place."""
    text = page.read_text(encoding="utf-8")
    if (names := [match[2] for match in SECTION.finditer(text)]) != list(dict.fromkeys(names)) or set(names) != set(texts):
        raise SystemExit(f"{page.name} has the generated sections {names}, wanted is each of {sorted(texts)} once")
    return SECTION.sub(lambda match: match[1] + "\n" + texts[match[2]].rstrip() + "\n\n" + match[3], text)


def output_keys(root):
    """docs/reference/cli-output.md out of cli/output_keys.json."""
    text = ("# What commands print for programs\n\n`-o json`, `yaml` and `jsonl` have the same keys. Unknown values are `null`; "
            "times are ISO 8601 in UTC; keys are only added.\n\n| command | keys |\n|---|---|\n")
    keys = json.loads((root / "cli" / "output_keys.json").read_text(encoding="utf-8"))
    return text + "".join(f"| {command} | {what} |\n" for command, what in keys.items())


def pages(folder):
    """{path: text} of all that is generated; what programs print only with their folder."""
    made = {REFERENCE / f"{name}.md": MARK + text for name, text in {
        "cli-output": output_keys(ROOT), "exit-codes": exit_codes.page(ROOT), "rpc": protocol.page(ROOT),
        "symptoms": symptoms.page(ROOT),
        **({**programs.pages(folder), "recipes": recipes.page(ROOT, folder)} if folder else {})}.items()}
    for page, texts in ((ROOT / "docs/job-file.md", job_file.sections(ROOT)), (ROOT / "docs/metrics.md", metrics.sections(ROOT))):
        made[page] = with_sections(page, texts)
    return made


def main():
    parser = argparse.ArgumentParser(description="Writes the generated reference of docs/.")
    parser.add_argument("--programs", type=pathlib.Path, help="folder of the programs, for the pages of their --help and plans")
    parser.add_argument("--check", action="store_true", help="write nothing; name what is not as its source says")
    arguments = parser.parse_args()
    stale = 0
    for path, text in pages(arguments.programs).items():
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        if there == text:
            continue
        stale += 1
        if arguments.check:
            name = str(path.relative_to(ROOT))
            sys.stderr.writelines(line + "\n" for line in list(difflib.unified_diff(
                there.splitlines(), text.splitlines(), name, "as its source says", lineterm="", n=0))[:20])
            print(f"{name} is not what its source says; run deploy/docs --reference", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
