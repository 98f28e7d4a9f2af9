"""docs/reference/rpc.md out of proto/muster/v1, coordinator/access/operations.cc and coordinator/service/authorization.cc."""

import re

FILES = ("client_api", "secret_api", "worker_api", "enrol_api", "allocation_api")
CALLERS = {"kNobody": "a client without a certificate", "kToken": "the cluster's token, on the coordinator's machine",
           "kAdmin": "an admin's certificate", "kNode": "a node's certificate", "kScraper": "a scraper's certificate",
           "kCoordinator": "a coordinator's certificate", "kUser": "a user's certificate, with a role in the whole cluster"}
SCOPES = {"kAnyone": "anyone with the token or a certificate", "kMember": "any role; the answer has what the caller may see",
          "kQueue": "{role} in the queue", "kJob": "{role} in the job's queue", "kCluster": "{role} in the whole cluster"}


def callers(root):
    """{"/muster.v1.Client/Submit": [caller, ...]} of calls and pages, in the order of the tables."""
    text = (root / "coordinator/service/authorization.cc").read_text(encoding="utf-8")
    groups = {name: re.findall(r"Caller::(k\w+)", value)
              for name, value in re.findall(r"constexpr unsigned (k\w+) = ([^;]*);", text)}
    rules = {}
    for what, value in re.findall(r'\{"(/[^"]*)",\s*((?:[^{}]|\n)*?)\},', text):
        names = re.findall(r"Caller::(k\w+)", value) or groups[value.strip()]
        rules[what] = [CALLERS[name] for name in names] or ["all clients"]
    return rules


def roles(root):
    """{"/muster.v1.Client/Submit": "submitter in the queue"}, by the table of operations."""
    text = (root / "coordinator/access/operations.cc").read_text(encoding="utf-8")
    found = {}
    for method, scope, role, own in re.findall(r'\{k\w+,\s*"(/[^"]*)",\s*"[^"]*",\s*(k\w+),\s*k(\w+),\s*k(\w+)\},', text):
        found[method] = SCOPES[scope].format(role=role.lower())
        if own != role:
            found[method] += f"; {own.lower()} for a job of one's own"
    return found


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
    rules, needed, text = callers(root), roles(root), "# Calls\n\n"
    text += "The gRPC services of Muster, and who may call them. Errors are gRPC statuses whose message says what, why and what to do next.\n\n"
    for name in FILES:
        proto = (root / f"proto/muster/v1/{name}.proto").read_text(encoding="utf-8")
        for service, calls in services(proto):
            by = "role" if service == "Client" else "callers"
            if service == "Client":
                text += ("## Client\n\nAdmins and, in a cluster without users, clients with its token have every role "
                         "([users](../users.md)). A job that the caller may not see is NOT_FOUND.\n\n")
            else:
                text += f"## {service}\n\n"
            text += f"| call | answer | {by} | what |\n|---|---|---|---|\n"
            for call, request, response, comment in calls:
                method = f"/muster.v1.{service}/{call}"
                who = needed.get(method) or ", ".join(rules.get(method, ["the supervisors of the same allocation"]))
                text += f"| `{call}({request})` | `{response}` | {who} | {comment} |\n"
            text += "\n"
    text += "## Pages over TLS\n\nOn loopback metrics are open, and the status page needs its key.\n\n| path | callers |\n|---|---|\n"
    for path, who in rules.items():
        if not path.startswith("/muster.v1."):
            text += f"| `{path}` | {', '.join(who)} |\n"
    text += "\n## Messages of clients\n\n"
    proto = (root / "proto/muster/v1/client_api.proto").read_text(encoding="utf-8")
    return text + "```proto\n" + proto[proto.index("message SubmitRequest"):].rstrip() + "\n```\n"
