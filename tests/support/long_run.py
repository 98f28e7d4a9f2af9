#!/usr/bin/env python3
"""Runs a test of label long, and appends its result to docs/measurements/FORM.md as one row.

  long_run.py FORM COMMAND...

The command prints one JSON object to standard output, with "seed", or "first_seed" and "seeds", and "violations"
(docs/measurements/README.md). Ends as the command ends.
"""

import datetime
import json
import pathlib
import platform
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = """# {form}

`{command}`

| date (UTC) | commit | machine | seeds | minutes | result |
|---|---|---|---|---|---|
"""


def commit(root):
    """Dirty by any change but the rows that the forms before this one have appended."""
    def git(*arguments):
        return subprocess.run(["git", "-c", f"safe.directory={root}", "-C", str(root), *arguments],
                              capture_output=True, text=True, check=False).stdout.strip()
    revision = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/measurements")
    return f"{revision}-dirty" if changed else revision or "unknown"


def row_of(output, status, seconds, revision):
    try:
        result = json.loads(output)
    except ValueError:
        result = {}
    seeds = "unknown"
    if "seed" in result:
        seeds = str(result["seed"])
    elif "first_seed" in result:
        seeds = f"{result['first_seed']} to {result['first_seed'] + result['seeds'] - 1}"
    kept = {key: value for key, value in result.items()
            if key in ("faults", "jobs", "events", "sizes_mb", "compose", "violations") and value is not None}
    told = json.dumps(kept, sort_keys=True).replace("|", "\\|") if result else "no result was printed"
    machine = f"{platform.machine()}, Linux {platform.release()}"
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")
    return (f"| {now} | {revision} | {machine} | {seeds} | {seconds / 60:.0f} "
            f"| {'passed' if status == 0 else f'failed with status {status}'}: `{told}` |\n")


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    form, command = sys.argv[1], sys.argv[2:]
    started, revision = time.monotonic(), commit(ROOT)  # the commit that was built, not one made meanwhile
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="")
    file = ROOT / "docs" / "measurements" / f"{form}.md"
    if not file.exists():
        words = [word.replace(f"{ROOT}/", "") for word in command if not word.endswith("python3")]
        file.write_text(HEADER.format(form=form.capitalize(), command=" ".join(words)), encoding="utf-8")
    with file.open("a", encoding="utf-8") as rows:
        rows.write(row_of(done.stdout, done.returncode, time.monotonic() - started, revision))
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
