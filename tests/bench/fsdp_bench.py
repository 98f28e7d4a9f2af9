#!/usr/bin/env python3
"""The trainer beside Python FSDP2 on two CPU ranks; prints one JSON object.

  fsdp_bench.py [--only throughput,scaling] [--runs 3] [--steps 20] [--isa avx512]

The model is `init-model --preset small`: hidden 512, 8 layers, vocabulary 8192, 32 M parameters.
Both sides train it on the same rows, run after run in turn, one thread per rank. Parts:

  throughput   tokens/s of two ranks, each length and precision
  lora, qlora  the same with adapters of rank 16 on all linear layers, over frozen weights in bf16 or in
               NF4, 512 tokens; the peer has PEFT and bitsandbytes
  scaling      two ranks against two independent single-rank runs at once, 512 tokens
  memory       what training adds to the proportional set size of a bare process, per rank
  startup      process start to first finished step
  matmul       share of this machine's own rate of matrix products that a whole step reaches, each
               length and precision
  mixture      tokens/s of two ranks with experts, each precision, beside each way in which transformers
               computes them
  mixture_lora ours alone: a step with adapters on all matrices of that model, experts too, against a
               dense one of as many products
  strategies   ours alone: what sharding costs against no_shard, 512 tokens
  checkpoint   385 MB saved during training: stall, and what the steps beside it lose, 512 tokens

It takes build/release/bin, or MUSTER_BIN_DIR, with matmul_bench for that part, and the Python of
`deploy/install-deps --peer`. A part that fails has an `error` instead of figures; the exit code is
then 1. It never fails on a time.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
import peer  # noqa: E402
from cluster import BIN, ROOT  # noqa: E402
from gang import GangFailed  # noqa: E402
from training_runs import Case, Workspace  # noqa: E402

RANKS = 2
MATMUL_S = 4
CHECKPOINTS = 4
CHECKPOINT_EVERY = 16  # steps; enough for the one before to become durable
MB = 1e6
# 64 experts, of which a token's take as many products as a layer of 2,048.
MIXTURE = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 512,
           "intermediate_size": 1408, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
           "head_dim": 64, "vocab_size": 8192, "num_experts": 64, "num_experts_per_tok": 8,
           "moe_intermediate_size": 256, "norm_topk_prob": True}
EXPERTS = ("eager", "batched_mm", "grouped_mm")


def median(values):
    return statistics.median(list(values))


def rounded(value):
    """Four significant digits, through lists and dictionaries."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def figures(ours, theirs, name):
    """Medians of both sides; `ratio` is ours over the peer's."""
    result = {"muster": {name: median(ours), "all": ours}}
    if theirs:
        result["fsdp2"] = {name: median(theirs), "all": theirs}
        result["ratio"] = median(ours) / median(theirs)
    return result


def linear_shapes(config):
    """(out, in) of every linear layer of the model."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries, keys = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    block = [(queries, hidden), (keys, hidden), (keys, hidden), (hidden, queries), (inner, hidden),
             (inner, hidden), (hidden, inner)]
    return block * config["num_hidden_layers"] + [(config["vocab_size"], hidden)]


def step_flops(config, tokens):
    """Of one row of one step: 6 N T for the linear layers, and attention's two products and their
    four in backward over the causal half of the positions."""
    parameters = sum(out * into for out, into in linear_shapes(config))
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    attention = 6 * tokens**2 * head * config["num_attention_heads"] * config["num_hidden_layers"]
    return {"linear": 6 * parameters * tokens, "attention_causal": attention}


class Bench:
    def __init__(self, workspace, options):
        self.workspace = workspace
        self.options = options

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def ours(self, case, **arguments):
        run = self.workspace.run_ours(case, **{"steps": self.options.steps, **arguments})
        self.say(f"{case}: muster {arguments or ''} done")
        return run

    def theirs(self, case, **arguments):
        run = self.workspace.run_peer(case, **{"steps": self.options.steps, **arguments})
        self.say(f"{case}: fsdp2 {arguments or ''} done")
        return run

    def in_turn(self, ours, theirs):
        """Runs of both sides, one after the other; the peer's are [] where it is left out."""
        pairs = [(ours(), None if self.options.without_peer else theirs())
                 for _ in range(self.options.runs)]
        return [own for own, _ in pairs], [their for _, their in pairs if their is not None]

    def rate(self, run, tokens):
        return run.tokens_per_second(tokens, self.options.warmup)

    def cases(self):
        return [Case(tokens, precision)
                for precision in self.options.precisions for tokens in self.options.lengths]

    def throughput(self):
        return [self.throughput_of(case) for case in self.cases()]

    def throughput_of(self, case):
        ours, theirs = self.in_turn(lambda: self.ours(case), lambda: self.theirs(case))
        tokens = RANKS * case.tokens
        result = {"tokens_per_rank": case.tokens, "precision": case.precision,
                  **figures([self.rate(run, tokens) for run in ours],
                            [self.rate(run, tokens) for run in theirs], "tokens_per_s")}
        if theirs:
            # Equal losses say that both sides did the same work.
            result["loss_difference"] = max(
                abs(a - b) / b for a, b in zip(ours[0].losses, theirs[0].losses))
        return result

    def lora(self):
        return self.adapters_of({"lora": {"r": 16}}, ["--lora", "16"])

    def qlora(self):
        return self.adapters_of({"lora": {"r": 16}, "quantization": {"kind": "nf4"}},
                                ["--lora", "16", "--nf4"])

    def adapters_of(self, train, arguments):
        case = Case(512, "bf16")
        ours, theirs = self.in_turn(lambda: self.ours(case, train=train),
                                    lambda: self.theirs(case, arguments=arguments))
        tokens = RANKS * case.tokens
        return {"tokens_per_rank": case.tokens, "precision": case.precision,
                **figures([self.rate(run, tokens) for run in ours],
                          [self.rate(run, tokens) for run in theirs], "tokens_per_s")}

    def with_experts(self):
        return self.with_model("mixture", MIXTURE)

    def with_model(self, name, config):
        """A bench of the same options whose model is another one."""
        own = self.workspace
        folder = own.new_folder(name)
        file = folder / "config.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        subprocess.run([BIN / "muster-trainer", "init-model", "--config", file, "--out", folder / "model"],
                       check=True, capture_output=True)
        return Bench(Workspace(folder, own.env, model=folder / "model"), self.options)

    def mixture(self):
        bench = self.with_experts()
        return [bench.mixture_of(Case(1024, precision)) for precision in self.options.precisions]

    def mixture_of(self, case):
        ways = () if self.options.without_peer else EXPERTS
        rates, tokens = {"muster": [], **{way: [] for way in ways}}, RANKS * case.tokens
        failed = {}
        for _ in range(self.options.runs):
            rates["muster"].append(self.rate(self.ours(case), tokens))
            for way in [way for way in ways if way not in failed]:
                try:
                    run = self.theirs(case, arguments=["--experts", way])
                    rates[way].append(self.rate(run, tokens))
                except GangFailed as error:  # not every way knows every precision
                    failed[way] = str(error).splitlines()[-1]
        medians = {way: median(values) for way, values in rates.items() if values}
        own = medians.pop("muster")
        return {"tokens_per_rank": case.tokens, "precision": case.precision, "muster": own, "transformers": medians,
                "failed": failed, "ratios": {way: own / rate for way, rate in medians.items()}}

    def mixture_lora(self):
        lora = {"r": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "mlp.experts.gate_up_proj",
                                            "mlp.experts.down_proj"]}
        sparse = self.with_experts()
        dense = self.with_model("dense", {**MIXTURE, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
                                          "intermediate_size": MIXTURE["num_experts_per_tok"]
                                          * MIXTURE["moe_intermediate_size"]})
        results = []
        for precision in self.options.precisions:
            case = Case(1024, precision)
            pairs = [(median(sparse.ours(case, train={"lora": lora}).seconds[self.options.warmup:]),
                      median(dense.ours(case, train={"lora": {"r": 16}}).seconds[self.options.warmup:]))
                     for _ in range(self.options.runs)]
            results.append({"tokens_per_rank": case.tokens, "precision": precision,
                            "seconds": median(a for a, _ in pairs), "dense_seconds": median(b for _, b in pairs),
                            "ratio": median(a / b for a, b in pairs)})
        return results

    def scaling(self):
        case = Case(512, "bf16")

        def share(pair, singles):
            alone = sum(self.rate(run, case.tokens) for run in singles)
            return {"pair": self.rate(pair, RANKS * case.tokens), "singles": alone,
                    "share": self.rate(pair, RANKS * case.tokens) / alone}
        ours, theirs = self.in_turn(
            lambda: share(self.ours(case), self.ours(case, world=1, copies=2)),
            lambda: share(self.theirs(case),
                          self.theirs(case, world=1, copies=2, arguments=["--plain"])))
        result = {"tokens_per_rank": case.tokens, "precision": case.precision}
        for name, runs in (("muster", ours), ("fsdp2", theirs)):
            if runs:
                result[name] = {key: median(run[key] for run in runs) for key in runs[0]}
        return result

    def memory(self):
        bare = self.workspace.bare_ours()
        return [self.memory_of(Case(tokens, "bf16"), bare) for tokens in (512, 1024)]

    def memory_of(self, case, bare):
        def growth(sizes):
            """Of the rank that grew most, in MB."""
            return {key: max(rank[key] - rank["bare"] for rank in sizes) / MB
                    for key in ("peak", "end")}
        own = [{"bare": size, **seen}
               for size, seen in zip(bare, self.ours(case, memory=True).memory)]
        result = {"tokens_per_rank": case.tokens, "precision": case.precision,
                  "muster": {"bare_mb": max(bare) / MB, "growth_mb": growth(own)}}
        if not self.options.without_peer:
            their = self.theirs(case, memory=True).memory
            result["fsdp2"] = {"bare_mb": max(rank["bare"] for rank in their) / MB,
                               "growth_mb": growth(their)}
            result["ratio"] = {key: value / growth(their)[key]
                               for key, value in growth(own).items()}
        return result

    def startup(self):
        case = Case(512, self.options.precisions[0])
        ours, theirs = self.in_turn(lambda: self.ours(case, steps=2),
                                    lambda: self.theirs(case, steps=2))
        return figures([run.first_step_s for run in ours], [run.first_step_s for run in theirs],
                       "seconds")

    def machine_gflops(self, case):
        """Of one core while the other one is as busy."""
        shapes = [f"{out}x{into}" for out, into in linear_shapes(self.workspace.config)]
        programs = [subprocess.Popen(
            [BIN / "matmul_bench", case.precision, str(case.tokens), str(MATMUL_S), *shapes],
            env={**os.environ, **self.workspace.env, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE) for _ in range(RANKS)]
        return median(json.loads(program.communicate()[0])["gflops"] for program in programs)

    def matmul(self):
        results = []
        for case in self.cases():
            flops = step_flops(self.workspace.config, case.tokens)
            pairs = [(self.machine_gflops(case), self.ours(case)) for _ in range(self.options.runs)]
            reached = [sum(flops.values()) / median(run.seconds[self.options.warmup:]) / 1e9
                       for _, run in pairs]
            results.append({"tokens_per_rank": case.tokens, "precision": case.precision,
                            "step_gflop": {key: value / 1e9 for key, value in flops.items()},
                            "machine_gflops_per_core": median(rate for rate, _ in pairs),
                            "step_gflops_per_rank": median(reached),
                            "share": median(a / rate for a, (rate, _) in zip(reached, pairs))})
        return results

    def strategies(self):
        case, names = Case(512, "bf16"), ("no_shard", "shard_grad_op", "full_shard")
        rates = {name: [] for name in names}
        for _ in range(self.options.runs):
            for name in names:
                run = self.ours(case, fsdp={"strategy": name})
                rates[name].append(self.rate(run, RANKS * case.tokens))
        medians = {name: median(values) for name, values in rates.items()}
        return {"tokens_per_rank": case.tokens, "precision": case.precision,
                "tokens_per_s": medians,
                "full_shard_overhead": medians["no_shard"] / medians["full_shard"] - 1}

    def checkpoint(self):
        case, warmup = Case(512, "bf16"), self.options.warmup
        steps = CHECKPOINT_EVERY * (CHECKPOINTS + 1)

        def cost(run):
            if not run.saves:
                raise AssertionError("no checkpoint became durable during the run")
            return {"saves": len(run.saves), "stall_s": median(save.stall for save in run.saves),
                    "drag_s": median(run.drags(warmup)),
                    "durable_s": median(save.durable - save.begin for save in run.saves)}
        ours, theirs = self.in_turn(
            lambda: cost(self.ours(case, steps=steps, checkpoint_every=CHECKPOINT_EVERY)),
            lambda: cost(self.theirs(case, steps=steps,
                                     arguments=["--checkpoint-every", CHECKPOINT_EVERY])))
        return {name: {key: median(run[key] for run in runs) for key in runs[0]}
                for name, runs in (("muster", ours), ("fsdp2", theirs)) if runs}


PARTS = ("throughput", "lora", "qlora", "scaling", "memory", "startup", "matmul", "mixture", "mixture_lora",
         "strategies", "checkpoint")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--runs", type=int, default=3, help="of each side, in turn")
    parser.add_argument("--steps", type=int, default=20, help="of a run")
    parser.add_argument("--warmup", type=int, default=5, help="steps of a run that are not counted")
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--precisions", nargs="+", default=["bf16", "fp32"],
                        choices=["bf16", "fp32"])
    parser.add_argument("--isa", choices=sorted(machine.ISA_LIMITS), default="native",
                        help="most of the instructions that both sides may use")
    parser.add_argument("--without-peer", action="store_true")
    options = parser.parse_args()
    options.parts = options.only.split(",")
    unknown = set(options.parts) - set(PARTS)
    if unknown or options.steps <= options.warmup:
        parser.error(f"there is no part {', '.join(unknown)}" if unknown
                     else "--steps must be more than --warmup")
    return options


def main():
    options = parse_options()
    # As an exception, so that the ranks and the folder go too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if not options.without_peer:
        peer.require()
    result = {"benchmark": "fsdp", "ranks": RANKS, "runs": options.runs, "steps": options.steps,
              "warmup": options.warmup, "isa": options.isa, "revision": machine.revision(ROOT),
              "machine": machine.describe()}
    failed = False
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        bench = Bench(Workspace(folder, machine.ISA_LIMITS[options.isa]), options)
        for part in options.parts:
            try:
                result[part] = rounded(getattr(bench, part)())
            except (AssertionError, OSError, ValueError) as error:
                result[part] = {"error": str(error)}
                failed = True
    result["load_1min_at_end"] = machine.describe()["load_1min"]
    print(json.dumps(result, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
