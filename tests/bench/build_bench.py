#!/usr/bin/env python3
"""What a cold build costs without a compiler cache, in seconds of a core and of the clock.

  build_bench.py [--preset release] [--sample N] [--headers N] [--dir DIR] [--jobs N] [TARGET...]

Configures the preset in a directory of its own and builds the targets (default: those of deploy/quickstart).
Each compiler and linker runs under this script, which records its user and system time, so the figures hold on
a busy machine too; the wall time holds on an idle one alone. --sample N compiles every Nth object and all
precompiled headers, links nothing, and scales the objects by N. --headers N measures, after a build without
--sample, the N headers that most objects include, each alone and without a precompiled header, times the number of
objects; what one header includes is counted in both. Prints one JSON object.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time

import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICKSTART = ("muster", "muster-coordinator", "muster-worker", "muster-guardian", "muster-trainer")
DEAREST = 20


def core_seconds(usage):
    return usage.ru_utime + usage.ru_stime


def run_measured(command, **options):
    before, started = core_seconds(resource.getrusage(resource.RUSAGE_CHILDREN)), time.monotonic()
    status = subprocess.run(command, check=False, **options).returncode
    used = core_seconds(resource.getrusage(resource.RUSAGE_CHILDREN)) - before
    return status, used, time.monotonic() - started


def record(log, command):
    """As launcher: runs the compiler and appends one line, in one write since launchers run side by side."""
    status, used, wall = run_measured(command)
    output = command[command.index("-o") + 1] if "-o" in command else ""
    line = json.dumps({"output": output, "compiles": "-c" in command, "core_s": used, "wall_s": wall}) + "\n"
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, line.encode())
    os.close(file)
    return status


def configure(build, preset, log):
    launcher = f"{sys.executable};{pathlib.Path(__file__).resolve()};--record;{log}"
    subprocess.run(["cmake", "--preset", preset, "-B", build, f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}",
                    f"-DCMAKE_CXX_LINKER_LAUNCHER={launcher}"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def ninja(build, *arguments):
    return subprocess.run(["ninja", "-C", build, *arguments], check=True, capture_output=True, text=True).stdout


def inputs_of(build, targets):
    return sorted(set(ninja(build, "-t", "inputs", *targets).splitlines()))


def commands_of(build):
    """By object; older versions of CMake do not write its name beside the command."""
    entries = json.loads((pathlib.Path(build) / "compile_commands.json").read_text(encoding="utf-8"))
    return {shlex.split(entry["command"])[-3]: entry for entry in entries}


def by_target(records):
    sums = collections.defaultdict(lambda: {"objects": 0, "compile_core_s": 0.0, "link_core_s": 0.0})
    for entry in records:
        named = re.search(r"(?:^|/)CMakeFiles/([^/]+)\.dir/", entry["output"])
        target = sums[named.group(1) if named else os.path.basename(entry["output"])]
        if entry["compiles"]:
            target["objects"] += 1
        target["compile_core_s" if entry["compiles"] else "link_core_s"] += entry["core_s"]
    ordered = sorted(sums.items(), key=lambda item: -item[1]["compile_core_s"] - item[1]["link_core_s"])
    return {name: {key: round(value, 1) for key, value in sum_.items()} for name, sum_ in ordered}


def included_by_name():
    """Headers as the tree's own #include lines spell them: what an author can choose to include or not."""
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "*.cc", "*.h"], check=True, capture_output=True, text=True)
    names = set()
    for file in files.stdout.splitlines():
        text = (ROOT / file).read_text(encoding="utf-8", errors="replace")
        names.update(re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.M))
    return names


def dearest_headers(build, number):
    """The cost of each header alone times how many objects read it, as the compiler's dependency files say."""
    counts, readers, reader = collections.Counter(), {}, None
    for line in ninja(build, "-t", "deps").splitlines():
        if not line.startswith(" "):
            reader = line.split(":")[0]
        elif path := line.strip():
            counts[path] += 1
            readers.setdefault(path, reader)
    commands = commands_of(build)
    names, found = included_by_name(), {}
    for path, count in counts.most_common():
        if len(found) == number:
            break
        name = next((n for n in names if path == n or path.endswith("/" + n)), None)
        if not name or name in found or readers[path] not in commands:
            continue
        entry = commands[readers[path]]
        words = shlex.split(entry["command"])[4:]  # without the launcher
        words = words[:words.index("-o")]
        if "-include" in words:
            at = words.index("-include")
            del words[at:at + 2]
        words = [word for word in words if word != "-Winvalid-pch"]
        status, used, _ = run_measured([*words, "-fsyntax-only", "-x", "c++", "-"], cwd=entry["directory"],
                                       input=f"#include <{name}>\n".encode(), stderr=subprocess.DEVNULL)
        if status == 0:
            found[name] = {"objects": count, "alone_core_s": round(used, 2), "core_s": round(count * used, 1)}
    return dict(sorted(found.items(), key=lambda item: -item[1]["core_s"])[:DEAREST])


def compile_sample(build, targets, every):
    """Compiles every Nth object of the targets by its own command, without what ninja would build before it."""
    wanted = re.compile(r"\.pb\.(cc|h)$|_pch\.dir/cmake_pch\.hxx\.gch$|embedded_assets\.cc$")
    ninja(build, "muster_commit", *filter(wanted.search, inputs_of(build, targets)))
    commands = commands_of(build)
    for name in [name for name in inputs_of(build, targets) if name in commands][::every]:
        subprocess.run(shlex.split(commands[name]["command"]), cwd=commands[name]["directory"], check=True)


def measure(build, options):
    log = os.path.join(build, "compilers.jsonl")
    os.environ["CCACHE_DISABLE"] = "1"
    configure(build, options.preset, log)
    started = time.monotonic()
    if options.sample > 1:
        compile_sample(build, options.targets, options.sample)
    else:
        subprocess.run(["ninja", "-C", build, "-j", str(options.jobs), *options.targets], stdout=sys.stderr, check=True)
    wall = time.monotonic() - started
    with open(log, encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    compiled = [entry for entry in records if entry["compiles"]]
    shared = sum(entry["core_s"] for entry in compiled if entry["output"].endswith(".gch"))
    objects = sum(entry["core_s"] for entry in compiled) - shared
    result = {"objects_compiled": len(compiled), "wall_s": round(wall, 1),
              "precompiled_headers_core_s": round(shared, 1),
              "compile_core_s": round(shared + objects * options.sample, 1)}
    if options.sample == 1:
        result["link_core_s"] = round(sum(entry["core_s"] for entry in records if not entry["compiles"]), 1)
    result["targets"] = by_target(records)
    result["dearest_objects_core_s"] = {
        entry["output"]: round(entry["core_s"], 1)
        for entry in sorted(compiled, key=lambda entry: -entry["core_s"])[:DEAREST]}
    if options.headers:
        result["dearest_headers"] = dearest_headers(build, options.headers)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", default=QUICKSTART, metavar="TARGET")
    parser.add_argument("--preset", default="release")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="compile every Nth object only")
    parser.add_argument("--headers", type=int, default=0, metavar="N", help="measure so many headers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--dir", help="build here and keep it, instead of in a temporary directory")
    options = parser.parse_args()
    result = {"benchmark": "cold_build", "preset": options.preset, "targets_built": list(options.targets),
              "sample": options.sample, "revision": machine.revision(ROOT), "machine": machine.describe()}
    with tempfile.TemporaryDirectory(prefix="muster-build-bench.") as temporary:
        result.update(measure(options.dir or temporary, options))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        sys.exit(record(sys.argv[2], sys.argv[3:]))
    main()
