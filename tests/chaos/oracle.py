"""What must hold of a job after faults: each function gives the violations that it finds, as texts."""

import hashlib
import pathlib
import re
import tempfile

from cluster import read_metrics, run

# The fields of a step's line in metrics.jsonl that describe training, not time, machine or attempt.
NUMBERS = ("loss", "grad_norm", "lr", "tokens", "samples", "sample_chain")
SAMPLES = ("samples", "sample_chain")


def digest(folder):
    """One hash over all files of a folder, names included."""
    total = hashlib.sha256()
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_file():
            total.update(str(path.relative_to(folder)).encode() + b"\0")
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def result_of(output):
    """What two runs of one job are compared by."""
    model = pathlib.Path(output) / "model"
    return {"steps": {step: {key: entry[key] for key in NUMBERS}
                      for step, entry in read_metrics(output).items()},
            "model": digest(model) if model.exists() else ""}


def compare(got, wanted, *, same_size=True, all_steps=True):
    """Against the undisturbed run. With another number of ranks on the way only the samples must be
    the same; a full disk may have kept steps out of the file, but must not have changed any."""
    keys = NUMBERS if same_size else SAMPLES
    found = []
    for step, numbers in sorted(wanted["steps"].items()):
        mine = got["steps"].get(step)
        if mine is None:
            if all_steps:
                found.append(f"step {step} is missing in metrics.jsonl")
            continue
        found += [f"step {step}: {key} is {mine[key]} and was {numbers[key]} without faults"
                  for key in keys if mine[key] != numbers[key]]
    found += [f"step {step} should not be there" for step in got["steps"] if step not in wanted["steps"]]
    if same_size and got["model"] != wanted["model"]:
        found.append("the final weights differ from those of the undisturbed run")
    return found[:5]


def check_checkpoints(checkpoints):
    """Every committed one is whole: all of its shards are read and all of their checksums hold."""
    found = []
    for folder in checkpoints:
        with tempfile.TemporaryDirectory() as temp:
            done = run("muster-trainer", "export", "--checkpoint", folder, "--out", f"{temp}/whole",
                       check=False, timeout=120)
        if done.returncode != 0:
            found.append(f"checkpoint {folder.name} does not verify: {done.stderr.strip()[-300:]}")
    return found


# The cause of an attempt that was ended to go on with more nodes.
GROWTH = "which have room again"


def check_timeline(job, faults):
    """`job` as `muster get -o json` gives it; faults as (generation at that time, Injected, alone)."""
    attempts = job["attempts"]
    ended = [a for a in attempts if a["state"] == "ended"]
    found = [f"attempt {a['generation']} ended without a cause" for a in ended if not a["cause"]]
    for generation, fault, alone in faults:
        if not fault.cause:
            continue
        after = [a["cause"] or "" for a in ended if a["generation"] >= generation]
        causes = [cause for cause in after if "every rank has finished" not in cause]
        if not causes:
            found.append(f"no attempt ended for {fault.kind} of {fault.target}")
        elif any(GROWTH in cause for cause in causes):
            continue  # it struck while the gang was being formed anew with more nodes anyway
        elif alone and not any(re.search(fault.cause, cause, re.IGNORECASE) for cause in causes):
            found.append(f"no cause names {fault.kind} of {fault.target}; they are {causes}")
    return found


def check_end(job, faults):
    """Whether it ended as it had to."""
    terminal = any(fault.terminal for _, fault, _ in faults)
    wanted = "failed" if terminal else "succeeded"
    return [] if job["state"] == wanted else [
        f"the job is {job['state']} and should be {wanted}: {job['reason']}"]


def check_free(nodes):
    return [f"{node['slots_used']} slots of {node['name']} are in use although no job runs"
            for node in nodes if node["slots_used"] != 0]
