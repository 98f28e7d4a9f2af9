"""A second implementation of the audit trail's chain (docs/users.md), which shares nothing with common/audit."""

import hashlib
import json
import re

LINE = re.compile(r'^(\{.*),"hash":"([0-9a-f]{64})"\}$', re.S)


class Broken(Exception):
    pass


def verify(lines, kept=None):
    """The head, SEQ:HASH, of a trail that is as it was written; `kept`: a head of it from before."""
    head, kept_seq = None, int(kept.split(":")[0]) if kept else 0
    met = not kept
    for line in lines:
        match = LINE.match(line)
        if not match:
            raise Broken(f"no line of a trail: {line[:60]}")
        sealed, found = match[1] + "}", match[2]
        if hashlib.sha256(sealed.encode()).hexdigest() != found:
            raise Broken("a line was changed")
        entry = json.loads(sealed)
        if head:
            if entry["seq"] != head[0] + 1:
                raise Broken(f"entry {head[0] + 1} is missing")
            if entry["previous"] != head[1]:
                raise Broken(f"entry {entry['seq']} is of another trail")
        elif kept and entry["seq"] == kept_seq + 1:
            met = kept == f"{kept_seq}:{entry['previous']}"
        head = (entry["seq"], found)
        if entry["seq"] == kept_seq:
            met = kept == f"{kept_seq}:{found}"
    if not met:
        raise Broken("the kept head is not there")
    return "%d:%s" % head if head else None
