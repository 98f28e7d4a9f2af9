"""docs/reference/rpc.md out of proto/muster/v1 and coordinator/service/authorization.cc."""

import re

FILES = ("client_api", "worker_api", "enrol_api", "allocation_api")
CALLERS = {"kNobody": "a client without a certificate", "kToken": "the cluster's token, on the coordinator's machine",
           "kAdmin": "an admin's certificate", "kNode": "a node's certificate", "kScraper": "a scraper's certificate",
           "kCoordinator": "a coordinator's certificate"}


def callers(root):
    """{"/muster.v1.Client/Submit": [caller, ...]} of calls and pages, in the order of the tables."""
    text = (root / "coordinator/service/authorization.cc").read_text(encoding="utf-8")
    groups = {name: re.findall(r"Caller::(k\w+)", value)
              for name, value in re.findall(r"constexpr unsigned (k\w+) = ([^;]*);", text)}
    rules = {}
    for what, value in re.findall(r'\{"(/[^"]*)",\s*((?:[^{}]|\n)*?)\},', text):
        names = re.findall(r"Caller::(k\w+)", value) or groups[value.strip()]
        rules[what] = [CALLERS[name] for name in names]
    return rules


def comment_of(lines, number):
    """The comment that ends above a line."""
    first = number
    while first > 0 and lines[first - 1].strip().startswith("//"):
        first -= 1
    return " ".join(line.strip().removeprefix("//").strip() for line in lines[first:number])


def services(text):
    """(service, [(call, request, response, comment)])."""
    lines, found = text.splitlines(), []
    for number, line in enumerate(lines):
        if start := re.match(r"service (\w+) \{", line):
            found.append((start.group(1), []))
        elif call := re.match(r"\s+rpc (\w+)\((.*?)\) returns \((.*?)\);", line):
            found[-1][1].append((*call.groups(), comment_of(lines, number)))
    return found


def page(root):
    rules, text = callers(root), "# Calls\n\n"
    text += "The gRPC services of Muster, and who may call them. Errors are gRPC statuses whose message says what, why and what to do next.\n\n"
    for name in FILES:
        proto = (root / f"proto/muster/v1/{name}.proto").read_text(encoding="utf-8")
        for service, calls in services(proto):
            text += f"## {service}\n\n| call | answer | callers | what |\n|---|---|---|---|\n"
            for call, request, response, comment in calls:
                who = ", ".join(rules.get(f"/muster.v1.{service}/{call}", ["the supervisors of the same allocation"]))
                text += f"| `{call}({request})` | `{response}` | {who} | {comment} |\n"
            text += "\n"
    text += "## Pages over TLS\n\nOn loopback metrics are open, and the status page needs its key.\n\n| path | callers |\n|---|---|\n"
    for path, who in rules.items():
        if not path.startswith("/muster.v1."):
            text += f"| `{path}` | {', '.join(who)} |\n"
    text += "\n## Messages of clients\n\n"
    proto = (root / "proto/muster/v1/client_api.proto").read_text(encoding="utf-8")
    return text + "```proto\n" + proto[proto.index("message SubmitRequest"):].rstrip() + "\n```\n"
