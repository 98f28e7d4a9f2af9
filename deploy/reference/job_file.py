"""Tables of docs/job-file.md out of configs/job.schema.json.

Keywords of ours in the schema, which validators pass over: x-default (the default where it is no value), x-see (where
a page says more), x-notes (paragraphs below the table), x-files (what a job leaves, by name).
"""

import json

BOUNDS = (("minimum", "from {}"), ("exclusiveMinimum", "above {}"), ("maximum", "to {}"), ("exclusiveMaximum", "below {}"))


def shown(value):
    """As it is written in a job file."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value < 100_000 else f"{value:,}".replace(",", " ")
    return json.dumps(value)


def word(value):
    return f"`{value}`" if isinstance(value, str) else shown(value)


def values(schema):
    """What a key may have, in a few words."""
    if "enum" in schema:
        return ", ".join(word(each) for each in schema["enum"] if each is not None)
    if "const" in schema:
        return word(schema["const"])
    if "oneOf" in schema:
        return "text, list" if any(each.get("type") == "array" for each in schema["oneOf"]) else "text, map"
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    names = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true, false", "array": "list",
             "object": "map"}
    text = ", ".join(names[kind] for kind in kinds if kind != "null")
    bounds = [form.format(shown(schema[key])) for key, form in BOUNDS if key in schema]
    return text + ("" if "string" in kinds or not bounds else " " + " ".join(bounds))


def default(schema, required):
    if required:
        return "required"
    if "x-default" in schema:
        return schema["x-default"]
    return word(schema["default"]) if "default" in schema else "none"


def link(schema):
    where = schema.get("x-see", "")
    if not where:
        return ""
    name = "below" if where.startswith("#") else where.partition(".md")[0]
    return f" [{name[0].upper() + name[1:]}]({where})."


def is_section(schema):
    """A map of keys that are known."""
    return schema.get("properties") is not None


def leaves(schema, path=""):
    """(key, schema, required) of all keys below, those of sections without a title of their own included."""
    for name, key in schema["properties"].items():
        if not is_section(key):
            yield path + name, key, name in schema.get("required", ())
        elif "title" not in key:
            yield from leaves(key, path + name + ".")


def table(schema, path):
    lines = ["| key | values | default | meaning |", "|---|---|---|---|"]
    for name, key, required in leaves(schema, path):
        cells = f"`{name}`", values(key), default(key, required), key["description"] + link(key)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def notes(schema):
    return "".join(paragraph + "\n\n" for paragraph in schema.get("x-notes", ()))


def files(schema):
    if "x-files" not in schema:
        return ""
    rows = "".join(f"| `{name}` | {what} |\n" for name, what in schema["x-files"].items())
    return "| file | what |\n|---|---|\n" + rows + "\n"


def section(schema, path, level):
    """A heading, what the section is for, its keys, and the sections below it."""
    more = " [Its format](" + schema["x-see"] + ")." if "x-see" in schema else ""
    text = f"{'#' * level} {schema['title']}\n\n`{path.rstrip('.')}`: {schema['description']}{more}\n\n"
    text += table(schema, path) + "\n" + notes(schema) + files(schema)
    for name, key in schema["properties"].items():
        if is_section(key) and "title" in key:
            text += section(key, path + name + ".", level + 1)
        elif "title" in key:
            text += f"{'#' * (level + 1)} {key['title']}\n\n{notes(key)}"
    return text


def sections(root):
    """{name: text} of the generated sections of docs/job-file.md."""
    schema = json.loads((root / "configs" / "job.schema.json").read_text(encoding="utf-8"))
    plain = {name: key for name, key in schema["properties"].items() if not is_section(key)}
    text = table({**schema, "properties": plain}, "") + "\n"
    for name, key in schema["properties"].items():
        if is_section(key):
            text += section(key, name + ".", 3 if name != "train" else 2)
    return {"keys": text}
