#!/usr/bin/env python3
"""Makes trainer/text/chat/testdata/*.jsonl: what Python's jinja2 renders, set up as transformers does.

    python3 -m venv venv && venv/bin/pip install jinja2==3.1.6
    venv/bin/python tests/golden/make_chat_golden.py trainer/text/chat/testdata

Writes conversations.jsonl, for each template there NAME.golden.jsonl with one row for each of the
conversations, and snippets.golden.jsonl: the small templates of snippets.txt, which lines of ---- part,
with their texts. {"error": true} stands where jinja2 refuses. The templates of chat_rows.FAMILIES have
NAME.family.jsonl instead, each row with a conversation of its own.
"""
import pathlib
import sys

import chat_rows

SEED = 20240726
CONVERSATIONS = 200
FAMILY_CONVERSATIONS = 30  # of each; tests/parity_hf/chat_parity_test.py tries more of them
SNIPPET_VARIABLES = {
    "s": "Hello, World", "u": "Grüße 😀", "empty": "", "n": 7, "neg": -3, "f": 2.5, "yes": True,
    "nothing": None, "l": [3, 1, 2], "words": ["b", "A", "c"], "nested": [[1, 2], [3]],
    "d": {"b": 1, "a": {"c": [1, 2]}, "Z": "x"}, "markup": "<b>&\"'</b>", "lines": "a\n\nb\nc\n",
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 4},
               {"name": "Cy", "age": 30, "tags": []}],
}


def main():
    out = pathlib.Path(sys.argv[1])
    environment = chat_rows.make_environment()
    source = chat_rows.Conversations(SEED)
    conversations = [source.make() for _ in range(CONVERSATIONS)]
    chat_rows.write_rows(out / "conversations.jsonl", conversations)
    for path in sorted(out.glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        if path.stem in chat_rows.FAMILIES:
            chat_rows.write_rows(out / f"{path.stem}.family.jsonl", chat_rows.family_rows(
                environment, path.stem, template, SEED, FAMILY_CONVERSATIONS))
        if path.stem in chat_rows.FAMILIES and path.stem != "qwen3_shape":
            continue
        chat_rows.write_rows(out / f"{path.stem}.golden.jsonl",
                             [chat_rows.render_conversation(environment, template, row)
                              for row in conversations])
    snippets = (out / "snippets.txt").read_text(encoding="utf-8").split("\n----\n")
    chat_rows.write_rows(out / "snippets.golden.jsonl",
                         [{"variables": SNIPPET_VARIABLES}] +
                         [{"template": each, **chat_rows.render(environment, each, SNIPPET_VARIABLES)}
                          for each in snippets])


if __name__ == "__main__":
    main()
