#!/usr/bin/env python3
"""Builds the documentation of a tree as a site: site.py ROOT OUT writes OUT/pages and OUT/site. deploy/docs calls it.

Pages keep their places and links; files that they link to are copied beside them. A page is changed where GitHub and
Markdown's Python differ: a link to a folder, which has no page, is its text alone; a list gets an empty line before it.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")
FENCE = re.compile(r"^(?:```.*?^```|(?: {4}|\t).*?$)", re.M | re.S)


def linked_file(page, target):
    """The path that a link leads to, or nothing where it leaves the tree."""
    path = target.partition("#")[0]
    return page.parent / path if path and not re.match(r"[a-z]+:", path) else None


def with_lists_apart(text):
    lines, made, fenced = text.split("\n"), [], False
    for line in lines:
        fenced ^= line.startswith("```")
        before = made[-1] if made else ""
        if not fenced and ITEM.match(line) and before.strip() and not before.startswith(" ") and not ITEM.match(before):
            made.append("")
        made.append(line)
    return "\n".join(made)


def prepared(page, root, copied):
    """The text of a page for the site; what it links to that is no page is added to `copied`."""
    def link(match):
        path = linked_file(page, match[3])
        if path is None:
            return match[0]
        if path.is_dir():
            return match[2]
        if path.is_file() and path.suffix != ".md":
            copied.add(path.resolve().relative_to(root))
        return match[0]

    text, made, end = page.read_text(encoding="utf-8"), "", 0
    for code in FENCE.finditer(text):
        made, end = made + LINK.sub(link, text[end:code.start()]) + code[0], code.end()
    return with_lists_apart(made + LINK.sub(link, text[end:]))


def stage(root, pages):
    """Writes the pages and what they link to."""
    copied = set()
    for page in sorted(path for pattern in PAGES for path in root.glob(pattern)):
        place = pages / page.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(prepared(page, root, copied), encoding="utf-8")
    for path in copied:
        (pages / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, pages / path)


def with_folders(config, root):
    """The navigation with a line for each page of a folder that it names."""
    def lines(match):
        pages = sorted(root.glob(match[3]))
        titles = [page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ").replace('"', "'") for page in pages]
        return f"{match[1]}- {match[2]}:\n" + "".join(
            f'{match[1]}    - "{title}": {page.relative_to(root)}\n' for title, page in zip(titles, pages))

    return re.sub(r"^( *)- (\w+): (\S*\*\S*)\n", lines, config, flags=re.M)


def main():
    root, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    shutil.rmtree(out, ignore_errors=True)
    stage(root, out / "pages")
    config = (root / "deploy" / "mkdocs.yml").read_text(encoding="utf-8")
    (out / "mkdocs.yml").write_text(with_folders(config, root), encoding="utf-8")
    shutil.copyfile(root / "deploy" / "site.css", out / "pages" / "site.css")
    return subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", out / "mkdocs.yml"],
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
