"""docs/reference/parity.md: which combinations it has, and how it is written.

Pure but for PAGE, so that a test without transformers can tell whether the page has all of them.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from families import FAMILIES, MIXTURES  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "parity.md"
ARCHITECTURES = {**FAMILIES, **MIXTURES}
STEPS = 20
ADAPTERS = ("full", "LoRA", "QLoRA")
PACKED = {"kind": "nf4", "double_quant": True}
STRATEGIES = (("full_shard", 3), ("shard_grad_op", 2), ("no_shard", 2))
COLUMNS = (*(("fp64", *strategy) for strategy in STRATEGIES), *(("fp32", *strategy) for strategy in STRATEGIES),
           ("bf16", "full_shard", 2))
# How far the reference in fp32 is from itself in fp64; most of it is rounding in its norm of gradients.
RULER = ("fp32", "reference", 0)
LIMITS = {"fp64": 1e-12, "fp32": 1e-5, "bf16": 3e-2}
# In fp32, beyond the ruler.
BEYOND_RULER = 1e-6
FIGURE = re.compile(r"\d\.\de[-+]\d\d")


def lora_of(architecture):
    """PEFT's configuration: adapters on all matrices, experts too."""
    lora = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}
    if architecture == "qwen2_moe":
        lora["target_modules"] += ["gate_proj", "up_proj", "down_proj", "shared_expert_gate"]
    if architecture in MIXTURES:
        return {**lora, "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}
    if architecture == "phi3":
        return {**lora, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}
    return {**lora, "target_modules": [*lora["target_modules"], "gate_proj", "up_proj", "down_proj"]}


HEAD = """<!-- Made by tests/parity_hf/parity_table_test.py --write; do not edit. -->

# Distance to the reference

Each figure is the largest relative difference of loss and gradient norm in {steps} steps of AdamW: to transformers, with adapters to PEFT, and
over weights in four bits to bitsandbytes. Models have two layers and random weights. Adapters are on all matrices, experts too. In fp64 and
fp32 both sides compute in that precision; bf16, over fp32 weights, is compared with fp64. The number beside a strategy is that of ranks. The
last column is how far the reference's own fp32 is from its fp64.

The test that has made this page fails above {limits}, and in fp32 more than {beyond:.0e} above the last column.
The bar of 1e-06 in fp32 is not reached where all weights are trained: there the reference's own fp32 is as far from its fp64, in the norm.

"""


def title_of(column):
    precision, name, ranks = column
    return "reference, fp32 to fp64" if column == RULER else f"{precision} {name} {ranks}"


def page_of(figures):
    """`figures`: {(architecture, adapters, precision, strategy, ranks): distance}, each as text."""
    limits = ", ".join(f"{limit:.0e} in {precision}" for precision, limit in LIMITS.items())
    text = HEAD.format(limits=limits, steps=STEPS, beyond=BEYOND_RULER)
    text += f"| architecture | trained | {' | '.join(map(title_of, (*COLUMNS, RULER)))} |\n|---|---|{'---|' * (len(COLUMNS) + 1)}\n"
    for architecture in ARCHITECTURES:
        for adapters in ADAPTERS:
            cells = [figures[(architecture, adapters, *column)] for column in (*COLUMNS, RULER)]
            text += f"| {architecture} | {adapters} | {' | '.join(cells)} |\n"
    return text


def figures_of(text):
    """What `page_of` has written, without cells that are no figures."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {(row[0], row[1], *column): cell for row in rows[2:] for column, cell in zip((*COLUMNS, RULER), row[2:])
            if FIGURE.fullmatch(cell)}
