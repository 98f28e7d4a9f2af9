#!/usr/bin/env python3
"""The trainer beside Python on one GPU, with random weights of Llama's shapes; prints one JSON object.

  gpu_bench.py [--cases 3b-full,8b-lora,8b-qlora,8b-full] [--tokens 4096] [--steps 20] [--folder DIR]

One row per step, bf16, AdamW. Both sides start from the same weights and train on the same rows. The
peer is FSDP2 with `full` (and again with torch.compile of each block), and PEFT under autocast, without
FSDP, with adapters of rank 16 on all linear layers; frozen weights are in bf16 or, for `qlora`, in NF4
of bitsandbytes. `8b-full` is ours alone, with moments in 16 bits: with those in 32 it does not fit.

A rate is the tokens of the steps after the warm-up over the time between their ends. `device_gb` is what
the process had of the GPU's memory at most; the peer's without CUDA's own. MFU counts 6 N + 12 L a s
operations per token, 4 N with adapters, over the 989 TFLOP/s of the H100's and H200's data sheet.

It takes build/release/bin, or MUSTER_BIN_DIR, and the Python in MUSTER_PEER_PYTHON. A case that fails
has an `error`; the exit code is then 1. It never fails on a time.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
import peer  # noqa: E402
from cluster import ROOT  # noqa: E402
from fsdp_bench import linear_shapes, rounded  # noqa: E402
from training_runs import LEARNING_RATE, Case, Workspace  # noqa: E402

PEAK_FLOPS = 989e12
RANDOM_MODEL = pathlib.Path(__file__).resolve().parent / "peers" / "random_model.py"
ADAPTERS = {"lora": {"r": 16}}
SHORT_MOMENTS = {"optimizer": {"lr": LEARNING_RATE, "grad_clip": 0, "moments": "bf16"}}
# For each case the shape, what ours trains, and the peers by name.
CASES = {
    "1b-full": ("1b", {}, {"fsdp2": [], "fsdp2_compiled": ["--compile"]}),
    "3b-full": ("3b", {}, {"fsdp2": [], "fsdp2_compiled": ["--compile"]}),
    "8b-full": ("8b", SHORT_MOMENTS, {}),
    "8b-lora": ("8b", ADAPTERS, {"peft": ["--plain", "--lora", "16"],
                                 "peft_compiled": ["--plain", "--lora", "16", "--compile"]}),
    "8b-qlora": ("8b", {**ADAPTERS, "quantization": {"kind": "nf4"}},
                 {"peft": ["--plain", "--lora", "16", "--nf4"]}),
}


def gpu_name():
    done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                          capture_output=True, text=True, check=True)
    return done.stdout.strip()


def flops_per_token(config, tokens, frozen):
    parameters = sum(out * into for out, into in linear_shapes(config))
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    attention = 12 * config["num_hidden_layers"] * head * config["num_attention_heads"] * tokens
    return (4 if frozen else 6) * parameters + attention


class Bench:
    def __init__(self, folder, options):
        self.folder = folder
        self.options = options
        self.env = {"OMP_NUM_THREADS": min(8, os.cpu_count())}
        self.spaces = {}

    def space(self, shape):
        """The folder with the model of that shape, which is made when it is asked for first."""
        if shape not in self.spaces:
            model = self.folder / f"{shape}-model"
            subprocess.run([peer.PYTHON, RANDOM_MODEL, "--shape", shape, "--out", model], check=True,
                           stdout=sys.stderr, stderr=sys.stderr)
            place = self.folder / shape
            place.mkdir()
            self.spaces[shape] = Workspace(place, self.env, model=model, device="cuda")
        return self.spaces[shape]

    def figures(self, name, run, config, frozen):
        warmup, tokens = self.options.warmup, self.options.tokens
        seconds = (run.ends[-1] - run.ends[warmup - 1]) / (len(run.ends) - warmup)
        rate = tokens / seconds
        result = {"tokens_per_s": rate, "first_step_s": run.first_step_s,
                  "mfu": rate * flops_per_token(config, tokens, frozen) / PEAK_FLOPS,
                  "device_gb": run.device_bytes / 1e9, "last_loss": run.losses[-1]}
        print(f"{name} done", file=sys.stderr, flush=True)
        return result

    def case(self, name):
        shape, train, peers = CASES[name]
        space, case = self.space(shape), Case(self.options.tokens, "bf16")
        result = {}

        def attempt(side, start):
            try:
                run = start()
                result[side] = self.figures(f"{name} {side}", run, space.config, "lora" in train)
                return run
            except (AssertionError, OSError, ValueError) as error:
                result[side] = {"error": str(error)}
                print(f"{name} {side}: {error}", file=sys.stderr, flush=True)
                return None
        ours = attempt("muster", lambda: space.run_ours(case, steps=self.options.steps, world=1,
                                                        train=train))
        for side, arguments in peers.items():
            theirs = attempt(side, lambda arguments=arguments: space.run_peer(
                case, steps=self.options.steps, world=1, arguments=arguments))
            if ours and theirs:
                result[side]["ratio"] = (result["muster"]["tokens_per_s"] /
                                         result[side]["tokens_per_s"])
                result[side]["loss_difference"] = max(
                    abs(a - b) / b for a, b in zip(ours.losses, theirs.losses))
        return result


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="3b-full,8b-lora,8b-qlora,8b-full",
                        help=f"separated by commas; of {', '.join(CASES)}")
    parser.add_argument("--tokens", type=int, default=4096, help="of a row")
    parser.add_argument("--steps", type=int, default=20, help="of a run")
    parser.add_argument("--warmup", type=int, default=6, help="steps that are not counted")
    parser.add_argument("--folder", help="where models are written, 3 to 17 GB each")
    options = parser.parse_args()
    options.cases = options.cases.split(",")
    unknown = set(options.cases) - set(CASES)
    if unknown or not 0 < options.warmup < options.steps:
        parser.error(f"there is no case {', '.join(unknown)}" if unknown
                     else "--steps must be more than --warmup")
    return options


def main():
    options = parse_options()
    peer.require()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-bench-", dir=options.folder))
    result = {"benchmark": "gpu", "gpu": gpu_name(), "tokens": options.tokens,
              "steps": options.steps, "warmup": options.warmup, "revision": machine.revision(ROOT),
              "machine": machine.describe(), "cases": {}}
    try:
        bench = Bench(folder, options)
        for name in options.cases:
            result["cases"][name] = rounded(bench.case(name))
            print(name, json.dumps(result["cases"][name]), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(result, indent=1))
    return 1 if any("error" in side for case in result["cases"].values()
                    for side in case.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
