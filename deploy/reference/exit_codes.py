"""docs/reference/exit-codes.md out of the headers that define them."""

import re

HEADERS = (
    ("muster", "cli/base/exit_code.h"),
    ("muster-trainer, and so a rank", "common/control_pipe/trainer_protocol.h"),
    ("muster-coordinator", "coordinator/server.h"),
    ("muster-worker --auto, a supervisor under Slurm", "worker/allocation/job_monitor.h"),
)
# A comment behind a constant may go on in lines below it, further in than a comment of its own.
CONSTANT = re.compile(r"inline constexpr int kExit\w+ =\s+(\d+); +// (.*(?:\n {10,}// .*)*)")


def codes(text):
    return [(int(code), re.sub(r"\s*\n\s*// ", " ", what)) for code, what in CONSTANT.findall(text)]


def page(root):
    text = "# Exit codes\n\n"
    for program, header in HEADERS:
        text += f"## {program}\n\n| code | meaning |\n|---|---|\n"
        for code, what in sorted(codes((root / header).read_text(encoding="utf-8"))):
            text += f"| {code} | {what} |\n"
        text += "\n"
    return text.rstrip() + "\n"
