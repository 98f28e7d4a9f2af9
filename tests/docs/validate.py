"""validate.py SCHEMA: job files, a JSON list on standard input, against it; prints what is wrong with each, "" where nothing is.

YAML is read by its core schema, as common/job_spec does. Runs in the Python that deploy/install-deps --docs makes.
"""

import json
import re
import sys

import jsonschema
import yaml


class Core(yaml.SafeLoader):
    """YAML's core schema, without the numbers and words of version 1.1; keys are unique."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.constructor.ConstructorError(None, None, "a key is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


Core.yaml_implicit_resolvers = {}
for tag, pattern, first in (
        ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", "true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", "[-+]?[0-9]+", list("-+0123456789")),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789"))):
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), first)
Core.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))


def real(loader, node):
    value = float(node.value)
    return node.value if value in (float("inf"), float("-inf")) else value


Core.add_constructor("tag:yaml.org,2002:float", real)


def refusal(validator, text):
    try:
        error = jsonschema.exceptions.best_match(validator.iter_errors(yaml.load(text, Core)))
    except (yaml.YAMLError, ValueError, TypeError) as wrong:
        return str(wrong)
    return f"{error.json_path}: {error.message}"[:400] if error else ""


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    json.dump([refusal(validator, text) for text in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
