"""Random conversations of each family, and what Python's jinja2 makes of them with its template.

  python reference_chats.py --count COUNT --seed SEED --out DIR

Writes DIR/NAME.family.jsonl for each of trainer/text/chat/testdata/NAME.jinja that is a family's.
"""

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "golden"))
import chat_rows  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    environment = chat_rows.make_environment()
    for family in chat_rows.FAMILIES:
        template = ROOT / "trainer" / "text" / "chat" / "testdata" / f"{family}.jinja"
        chat_rows.write_rows(
            pathlib.Path(options.out) / f"{family}.family.jsonl",
            chat_rows.family_rows(environment, family, template.read_text(encoding="utf-8"),
                                  options.seed, options.count))


if __name__ == "__main__":
    main()
