#!/usr/bin/env python3
"""Makes trainer/text/chat/testdata/*.jsonl: what Python's jinja2 renders, set up as transformers does.

    python3 -m venv venv && venv/bin/pip install jinja2==3.1.6
    venv/bin/python tests/golden/make_chat_golden.py trainer/text/chat/testdata

Writes conversations.jsonl, for each template there NAME.golden.jsonl with one row for each of the
conversations, and snippets.golden.jsonl: the small templates of snippets.txt, which lines of ---- part,
with their texts. {"error": true} stands where jinja2 refuses.
"""
import json
import pathlib
import random
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

SEED = 20240726
CONVERSATIONS = 200
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}

WORDS = ["alpha", "beta", "Straße", "naïve", "日本語", "emoji 😀", "العربية", "e\u0301", "x<y", "a&b",
         "\"quoted\"", "it's", "back\\slash", "tab\there", "line\nbreak", "{{ curly }}", "{% tag %}",
         "<|im_end|>", "</s>", "[/INST]", "<|eot_id|>", "<think>", "</think>", "0", "-1", "3.5",
         "\u2028", "\u00a0", "end."]


SNIPPET_VARIABLES = {
    "s": "Hello, World", "u": "Grüße 😀", "empty": "", "n": 7, "neg": -3, "f": 2.5, "yes": True,
    "nothing": None, "l": [3, 1, 2], "words": ["b", "A", "c"], "nested": [[1, 2], [3]],
    "d": {"b": 1, "a": {"c": [1, 2]}, "Z": "x"}, "markup": "<b>&\"'</b>", "lines": "a\n\nb\nc\n",
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 4},
               {"name": "Cy", "age": 30, "tags": []}],
}


class Generation(jinja2.ext.Extension):
    """{% generation %}, whose text goes out as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def make_environment():
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment


class Conversations:
    def __init__(self):
        self.random = random.Random(SEED)

    def text(self, empty=0.1):
        if self.random.random() < empty:
            return ""
        words = [self.random.choice(WORDS) for _ in range(self.random.randint(1, 8))]
        edge = self.random.choice(["", "", "", " ", "\n", "\n\n", "\t"])
        return edge + self.random.choice([" ", " ", "\n"]).join(words) + edge[::-1]

    def value(self, depth=0):
        kind = self.random.randint(0, 8 if depth < 2 else 5)
        if kind == 0:
            return self.random.choice([True, False, None])
        if kind == 1:
            return self.random.choice([0, -7, 42, 10**15])
        if kind == 2:
            return self.random.choice([0.5, -1.25, 1e20, 1e-7, 100.0, 3.14159])
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.random.randint(0, 2))]
        if kind >= 7:
            return {self.random.choice(["k", "ключ", "a b"]): self.value(depth + 1)
                    for _ in range(self.random.randint(0, 2))}
        return self.random.choice(WORDS)

    def arguments(self):
        return {name: self.value() for name in self.random.sample(["city", "unit", "größe"],
                                                                  self.random.randint(0, 2))}

    def tool(self, number):
        properties = {name: {"type": self.random.choice(["string", "integer"]),
                             "description": self.text(0)}
                      for name in self.random.sample(["city", "unit", "größe"],
                                                     self.random.randint(0, 2))}
        return {"type": "function", "function": {
            "name": f"tool_{number}", "description": self.text(0),
            "parameters": {"type": "object", "properties": properties,
                           "required": list(properties)}}}

    def calls(self):
        turns = []
        count = self.random.choice([1, 1, 1, 2])
        ids = ["".join(self.random.choices("abcdef0123456789", k=9)) for _ in range(count)]
        turns.append({"role": "assistant", "content": self.text(0.5), "tool_calls": [
            {"id": each, "type": "function",
             "function": {"name": f"tool_{i}", "arguments": self.arguments()}}
            for i, each in enumerate(ids)]})
        for each in ids:
            turns.append({"role": "tool", "content": self.text(), "tool_call_id": each})
        return turns

    def answer(self):
        message = {"role": "assistant", "content": self.text()}
        chance = self.random.random()
        if chance < 0.1:
            message["content"] = "<think>\n" + self.text() + "\n</think>\n\n" + self.text()
        elif chance < 0.2:
            message["reasoning_content"] = message["thinking"] = self.text(0)
        return message

    def make(self):
        messages = []
        if self.random.random() < 0.5:
            messages.append({"role": "system", "content": self.text()})
        has_tools = self.random.random() < 0.35
        for _ in range(self.random.randint(1, 4)):
            messages.append({"role": "user", "content": self.text()})
            if has_tools and self.random.random() < 0.6:
                messages += self.calls()
            messages.append(self.answer())
        if self.random.random() < 0.4:
            messages.pop()
        if self.random.random() < 0.04:
            messages.append({"role": "user", "content": self.text()})
        if self.random.random() < 0.03:
            messages = messages[:1]
        row = {"messages": messages, "add_generation_prompt": self.random.random() < 0.5}
        if has_tools:
            row["tools"] = [self.tool(i) for i in range(self.random.randint(1, 2))]
        return row


def render(environment, source, variables):
    try:
        return {"text": environment.from_string(source).render(**variables)}
    except (jinja2.TemplateError, TypeError, ValueError, OverflowError, ZeroDivisionError,
            AttributeError, LookupError, SyntaxError):
        return {"error": True}


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    environment = make_environment()
    source = Conversations()
    conversations = [source.make() for _ in range(CONVERSATIONS)]
    write_rows(out / "conversations.jsonl", conversations)
    for path in sorted(out.glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        write_rows(out / (path.stem + ".golden.jsonl"),
                   [render(environment, template,
                           {"tools": None, "documents": None, **VARIABLES, **row})
                    for row in conversations])
    snippets = (out / "snippets.txt").read_text(encoding="utf-8").split("\n----\n")
    write_rows(out / "snippets.golden.jsonl",
               [{"variables": SNIPPET_VARIABLES}] +
               [{"template": each, **render(environment, each, SNIPPET_VARIABLES)}
                for each in snippets])


if __name__ == "__main__":
    main()
