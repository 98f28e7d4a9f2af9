"""One rank of the Python peer: a decoder of transformers under PyTorch FSDP2, on CPUs with Gloo or
on a GPU with NCCL, whole or with adapters of PEFT over frozen weights, as they are or in NF4 of
bitsandbytes.

  RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=... OMP_NUM_THREADS=1 \\
    python fsdp2_train.py --model DIR --rows rows.npy --out DIR --precision bf16 --steps 20

Reads torchrun's environment and writes <out>/rank-<n>.json: when each step began and ended (Unix
seconds), the loss of each step averaged over the ranks, memory in bytes, and what each checkpoint
cost. Step s of rank r trains on row s * WORLD_SIZE + r, labels shifted by one, as muster-trainer
does with `shuffle: false` and one row per rank.

Every block and the root are units of their own. bf16 is MixedPrecisionPolicy(bf16, reduce fp32);
without FSDP (--plain) it is autocast, and frozen weights are in bf16. Gradients are summed and then
divided: Gloo takes the default average for a sum (pytorch issue 162338), which would train with
gradients WORLD_SIZE times too large.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import time

import numpy
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM

def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="Hugging Face directory")
    parser.add_argument("--rows", required=True, help=".npy with one row of token ids per line")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--grad-clip", type=float, default=0, help="global L2 norm; 0: no clipping")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--compile", action="store_true", help="each block by torch.compile")
    parser.add_argument("--plain", action="store_true", help="the module itself, without FSDP")
    parser.add_argument("--keep-gathered", action="store_true", help="reshard_after_forward=False")
    parser.add_argument("--lora", type=int, default=0, help="rank of adapters on all linear layers")
    parser.add_argument("--nf4", action="store_true", help="with --lora: frozen matrices in NF4")
    parser.add_argument("--experts", choices=("eager", "batched_mm", "grouped_mm"),
                        help="how transformers computes them")
    parser.add_argument("--checkpoint-every", type=int, default=0, help="steps; DCP async_save")
    return parser.parse_args()


def memory_bytes():
    """Proportional set size and peak resident size of this process."""
    values = {}
    for name in ("smaps_rollup", "status"):
        for line in pathlib.Path("/proc/self", name).read_text(encoding="ascii").splitlines():
            key, _, rest = line.partition(":")
            if key in ("Pss", "VmHWM"):
                values[key] = int(rest.split()[0]) * 1024
    device = torch.cuda.max_memory_reserved() if torch.cuda.is_initialized() else None
    return {"pss": values["Pss"], "peak_rss": values["VmHWM"], "device": device}


def load_model(options):
    frozen_in_16_bits = options.nf4 or (options.plain and options.lora)
    kind = torch.bfloat16 if frozen_in_16_bits else torch.float32
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=kind,
                                                 device_map=options.device, attn_implementation="sdpa",
                                                 **quantization(options))
    model.config.use_cache = False
    if options.experts:
        model.set_experts_implementation(options.experts)
    if options.lora:
        model = add_adapters(model, options)
    model.train()
    if options.compile:
        for block in blocks_of(model):
            block.compile()
    return model if options.plain else shard(model, options)


def quantization(options):
    """As accelerate's documentation has it for FSDP: packed weights stored as what FSDP gathers, or
    its mixed precision would convert their bits."""
    if not options.nf4:
        return {}
    from transformers import BitsAndBytesConfig
    return {"quantization_config": BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_quant_storage=torch.bfloat16)}


def add_adapters(model, options):
    from peft import LoraConfig, get_peft_model
    return get_peft_model(model, LoraConfig(r=options.lora, lora_alpha=2 * options.lora,
                                            target_modules="all-linear", task_type="CAUSAL_LM"))


def blocks_of(model):
    return [module for module in model.modules() if type(module).__name__.endswith("DecoderLayer")]


def shard(model, options):
    policy = (MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
              if options.precision == "bf16" else MixedPrecisionPolicy())
    # None is FSDP2's own choice: blocks are given up after forward, the root stays for backward.
    reshard = False if options.keep_gathered else None
    for module in (*blocks_of(model), model):
        fully_shard(module, mp_policy=policy, reshard_after_forward=reshard)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    return model


class Saver:
    """DCP's async_save on a group of its own: on the group that training uses, its collectives mix
    with those of FSDP."""

    def __init__(self, folder):
        self.folder = folder
        self.group = dist.new_group(backend="gloo")
        self.saves = []

    def save(self, step, model, optimizer):
        begin = time.time()
        weights, moments = get_state_dict(model, optimizer)
        saved = dcp.async_save({"model": weights, "optimizer": moments},
                               checkpoint_id=self.folder / f"step-{step}", process_group=self.group)
        entry = {"step": step, "begin": begin, "stall_end": time.time()}
        saved.add_done_callback(lambda _: entry.update(durable=time.time()))
        self.saves.append((entry, saved))

    def finish(self):
        for _, saved in self.saves:
            saved.result()
        return [entry for entry, _ in self.saves]


def train(options, model, rank, world):
    rows = numpy.load(options.rows)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.lr, betas=(0.9, 0.95), fused=True)
    precision = (torch.autocast(options.device, dtype=torch.bfloat16)
                 if options.plain and options.precision == "bf16" else contextlib.nullcontext())
    saver = Saver(options.out / "checkpoints") if options.checkpoint_every else None
    steps, losses = [], []
    for step in range(options.steps):
        begin = time.time()
        row = rows[(step * world + rank) % len(rows)].astype("int64")
        ids = torch.from_numpy(row)[None].to(options.device)
        with precision:
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        if options.grad_clip:
            torch.nn.utils.clip_grad_norm_(trained, options.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().double())
        if options.device == "cuda":
            torch.cuda.synchronize()
        steps.append({"begin": begin, "end": time.time()})
        if saver and (step + 1) % options.checkpoint_every == 0 and step + 1 < options.steps:
            saver.save(step + 1, model, optimizer)
    memory = memory_bytes()
    losses = torch.stack(losses)
    if world > 1:
        dist.all_reduce(losses)
    return {"steps": steps, "losses": (losses / world).tolist(), "memory": memory,
            "saves": saver.finish() if saver else []}


def main():
    options = parse_options()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    options.out.mkdir(parents=True, exist_ok=True)
    if world > 1 or not options.plain:
        dist.init_process_group("gloo" if options.device == "cpu" else "nccl")
        dist.barrier()
    result = {"rank": rank, "world_size": world, "precision": options.precision,
              "bare_memory": memory_bytes()}
    result.update(train(options, load_model(options), rank, world))
    (options.out / f"rank-{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    seconds = [step["end"] - step["begin"] for step in result["steps"]]
    print(f"rank {rank}: {len(seconds)} steps, median {statistics.median(seconds):.3f} s, "
          f"loss {result['losses'][-1]:.6f}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
