"""Conversations of many shapes, and what Python's jinja2 makes of them, set up as transformers does."""
import datetime
import functools
import json
import random

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}
NOW = 1767268800  # what strftime_now goes by: noon in UTC, so that the day is the same in most zones
WORDS = ["alpha", "beta", "Straße", "naïve", "日本語", "emoji 😀", "العربية", "e\u0301", "x<y", "a&b",
         "\"quoted\"", "it's", "back\\slash", "tab\there", "line\nbreak", "{{ curly }}", "{% tag %}",
         "<|im_end|>", "</s>", "[/INST]", "<|eot_id|>", "<think>", "</think>", "0", "-1", "3.5",
         "\u2028", "\u00a0", "end."]


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

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW).strftime(form)

    environment.filters["tojson"] = tojson
    environment.globals["strftime_now"] = strftime_now
    environment.globals["raise_exception"] = raise_exception
    return environment


class Conversations:
    def __init__(self, seed):
        self.random = random.Random(seed)

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


# What a family's template is tried with, by the template's name; nothing: users and assistants.
FAMILIES = {
    "gemma2_shape": set(),
    "gemma3_shape": {"system", "parts"},
    "gpt_oss_shape": {"system", "tools", "thinking", "one_call", "effort"},
    "granite3_shape": {"system", "tools", "thinking", "documents", "controls"},
    "mixtral_shape": {"system"},
    "olmoe_shape": {"system"},
    "phi3_shape": {"system"},
    "phi4_mini_shape": {"system", "tools", "tools_in_system"},
    "phi4_shape": {"system", "thinking"},
    "qwen3_shape": {"system", "tools", "thinking", "switch"},
}


class FamilyConversations(Conversations):
    """Those that a family's template takes, but for a few; with the variables that it asks for."""

    def __init__(self, family, seed):
        super().__init__(f"{family} {seed}")
        self.has = FAMILIES[family]

    def chance(self, most):
        return self.random.random() < most

    def schema(self, depth=0):
        kind = self.random.choice(["string", "integer", "number", "boolean", "array", "object", "any",
                                   "types", "oneOf"])
        schema = {"type": kind}
        if kind == "string" and self.chance(0.5):
            schema["enum"] = self.random.sample(WORDS, 2)
        elif kind == "array" and self.chance(0.8) and depth < 3:
            schema["items"] = self.schema(depth + 1)
        elif kind == "object" and depth < 2:
            names = self.random.sample(["from", "größe", "to"], self.random.randint(0, 3))
            schema["properties"] = {name: self.schema(depth + 1) for name in names}
            schema["required"] = names[:1]
        elif kind == "types":
            schema["type"] = self.random.choice([["string"], ["string", "null"]])
        elif kind == "oneOf":
            schema = {"oneOf": [self.schema(3) for _ in range(2)]}
        if self.chance(0.2):
            schema["nullable"] = True
        if self.chance(0.4):
            schema["description"] = self.text(0)
        if self.chance(0.2):
            schema["default"] = self.value()
        return schema

    def tool(self, number):
        tool = super().tool(number)
        names = self.random.sample(["city", "unit", "größe", "when"], self.random.randint(0, 3))
        tool["function"]["parameters"].update(
            {"properties": {name: self.schema() for name in names}, "required": names[:1]})
        return tool

    def calls(self):
        turns = super().calls()
        if "one_call" in self.has:
            turns[0]["tool_calls"] = turns[0]["tool_calls"][:1]
            turns = turns[:2]
        if "thinking" in self.has and self.chance(0.4):
            turns[0]["thinking"] = turns[0]["reasoning_content"] = self.text(0)
            if self.chance(0.9):
                turns[0]["content"] = ""
        return turns

    def answer(self):
        message = {"role": "assistant", "content": self.text()}
        if "thinking" in self.has and self.chance(0.4):
            message["reasoning_content"] = message["thinking"] = self.text(0)
        return message

    def parts(self):
        return [{"type": "image"} if self.chance(0.2) else {"type": "text", "text": self.text()}
                for _ in range(self.random.randint(1, 3))]

    def make(self):
        row = super().make()
        messages = row["messages"]
        if "system" not in self.has and messages[0]["role"] == "system" and self.chance(0.95):
            del messages[0]
        if "tools" not in self.has:
            row.pop("tools", None)
            row["messages"] = messages = [
                each for each in messages if each["role"] != "tool" and "tool_calls" not in each]
        for message in messages if "parts" in self.has else []:
            if self.chance(0.3) and message["role"] != "system":
                message["content"] = self.parts()
        if "tools_in_system" in self.has and messages and messages[0]["role"] == "system" and self.chance(0.3):
            messages[0]["tools"] = self.random.choice([None, json.dumps([self.tool(0)])])
        row.update(self.variables())
        return row

    def variables(self):
        variables = {
            "effort": {"reasoning_effort": self.random.choice(["low", "high"]),
                       "model_identity": self.text(0),
                       "builtin_tools": self.random.sample(["browser", "python"], self.random.randint(0, 2))},
            "switch": {"enable_thinking": self.chance(0.5)},
            "thinking": {"thinking": self.chance(0.5)},
            "documents": {"documents": [{"doc_id": i, "text": self.text()} for i in range(2)]},
            "controls": {"controls": {"citations": True, "length": "short"}},
        }
        return {name: value for key, named in variables.items() if key in self.has
                for name, value in named.items() if self.chance(0.4)}


@functools.lru_cache
def compiled(environment, source):
    return environment.from_string(source)


def render(environment, source, variables):
    try:
        return {"text": compiled(environment, source).render(**variables)}
    except (jinja2.TemplateError, TypeError, ValueError, OverflowError, ZeroDivisionError,
            AttributeError, LookupError, SyntaxError):
        return {"error": True}


def render_conversation(environment, source, row):
    return render(environment, source, {"tools": None, "documents": None, **VARIABLES, **row})


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


def family_rows(environment, family, template, seed, count):
    source = FamilyConversations(family, seed)
    conversations = [source.make() for _ in range(count)]
    return [{"conversation": row, **render_conversation(environment, template, row)}
            for row in conversations]
