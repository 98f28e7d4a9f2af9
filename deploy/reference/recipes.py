"""docs/reference/recipes.md out of configs/recipes and of what the planner says of each on 1, 8 and 64 of its GPUs."""

import json
import re
import subprocess

FOLDER = "configs/recipes"
# GPUs: nodes, and GPUs of each.
SIZES = {1: (1, 1), 8: (1, 8), 64: (8, 8)}
HEAD = """# Recipes

Job files of `configs/recipes`, and what [`muster-trainer plan`](../planning.md) says of each on 1, 8 and 64 of the GPUs that it is made for, up to
eight in a node. The batch of a GPU stays the same; memory of the host is not judged. *Limit* is what most of a step's time goes into, or what does
not fit. Rows are taken to be as long as `max_seq_len`. [Planning](../planning.md#time) says how far to trust these figures.

"""
# Parts of the planner's step, as people call them.
SHARES = {"compute_seconds": "products", "exposed_seconds": "waiting for other GPUs", "optimizer_seconds": "updates"}


def said(text, what):
    """The rest of the comment line "# WHAT: ..."."""
    return re.search(rf"^# {what}: (.*)$", text, re.M).group(1)


def purpose(text):
    """The first comment, without the line for editors."""
    lines = re.search(r"^# yaml-language-server: .*\n((?:# .*\n)+)#$", text, re.M).group(1)
    return " ".join(line.removeprefix("# ") for line in lines.splitlines())


def plan(program, recipe, text, nodes, per_node):
    device = re.search(r"--device (\S+)", said(text, "plan")).group(1)
    done = subprocess.run([program, "plan", recipe, "--model", recipe.parent / "shapes" / f"{said(text, 'shape')}.json",
                           "--device", device, "--nodes", str(nodes), "--ranks-per-node", str(per_node), "-o", "json"],
                          capture_output=True, text=True, timeout=60, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{recipe.name}: {done.stderr}")
    return json.loads(done.stdout)


def limit(plan):
    if plan["fits"]:
        step = plan["step"]
        return max((step[key] / step["seconds"], f"{what}, {100 * step[key] / step['seconds']:.0f} %") for key, what in SHARES.items())[1]
    lacks = f"lacks {(plan['memory']['device_bytes'] - plan['device_memory_bytes']) / 1e9:.1f} GB"
    return "; ".join([lacks, *(f"fits with `{one['change']}`" for one in plan["suggestions"][:1])])


def row(gpus, plan):
    memory = plan["memory"]
    speed = f"{float(format(plan['tokens_per_second'], '.3g')):,.0f}" if plan["fits"] else ""
    return (f"| {gpus} | {memory['device_bytes'] / 1e9:.1f} | {memory['node_host_bytes'] / 1e9:.1f} | "
            f"{'yes' if plan['fits'] else 'no'} | {speed} | {limit(plan)} |\n")


def page(root, programs):
    text = HEAD
    for recipe in sorted((root / FOLDER).glob("*.yaml")):
        source = recipe.read_text(encoding="utf-8")
        plans = {gpus: plan(programs / "muster-trainer", recipe, source, *size) for gpus, size in SIZES.items()}
        first = plans[1]
        text += (f"## {recipe.stem}\n\n{purpose(source)} [The file](../../{FOLDER}/{recipe.name}).\n\n"
                 f"{first['parameters'] / 1e9:.2f} B parameters")
        if first["adapter_parameters"]:
            text += f", {first['adapter_parameters'] / 1e6:.0f} M trained"
        text += (f"; `{first['device']}` of {first['device_memory_bytes'] / 1e9:.1f} GB.\n\n"
                 "| GPUs | GB of each | GB of each host | fits | tokens/s | limit |\n|---|---|---|---|---|---|\n")
        text += "".join(row(*one) for one in plans.items()) + "\n"
    return text.rstrip() + "\n"
