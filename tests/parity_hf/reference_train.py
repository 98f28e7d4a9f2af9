"""Trains a model of transformers in plain Python, by the letter of a job file.

  python reference_train.py --model DIR --rows rows.npy --train TRAIN.json --batch 4 --out FILE

--train is the `train` block of a job file as JSON, --batch the rows of a whole step over all ranks
and micro-batches: step s trains on rows [s * batch, (s + 1) * batch) in one forward. Writes the
losses and gradient norms as JSON. `fsdp.mixed_precision` says what is computed in: fp64 or fp32.

transformers narrows to fp32 within its norms, its attention where that is eager, its routers and its
loss. In fp64 all are widened (widened.py), or the curve would be an fp32 one; the rotary tables stay
those of transformers, fp32 values.

Where a model's config asks for it (output_router_logits), the loss has the balance of its experts:
the mean over micro-batches of --micro rows.

With `quantization` the matrices of the blocks are Linear4bit of bitsandbytes. It computes in fp32
at most, so in fp64 they are plain ones with the values that it reads back, which are fp32. Experts, which
are parameters and no Linear4bit, have such values too: those of each of their matrices by itself.
"""

import argparse
import json
import math
import pathlib

import numpy
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from bitsandbytes.nn import Linear4bit
from peft import PeftModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, get_scheduler

from widened import routers_of, widen

TYPES = {"fp64": torch.float64, "fp32": torch.float32}


def loss_of(model, ids, micro):
    """Of rows that are all as long."""
    loss = 0
    for part in ids.split(micro):
        out = model(input_ids=part)
        loss += torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), part[:, 1:].flatten())
        if getattr(model.config, "output_router_logits", False):
            loss += model.config.router_aux_loss_coef * out.aux_loss
    return loss / math.ceil(len(ids) / micro)


def pack_experts(model, quantization):
    twice = quantization["double_quant"]

    def through(values):
        return dequantize_4bit(*quantize_4bit(values.float().contiguous(), quant_type=quantization["kind"],
                                              compress_statistics=twice)).to(values.dtype)

    for module in model.modules():
        for name, parts in (("gate_up_proj", 2), ("down_proj", 1)):
            parameter = getattr(module, name, None)
            if not isinstance(parameter, torch.nn.Parameter) or parameter.ndim != 3:
                continue
            if getattr(module, "is_transposed", False):  # gate and up are rows of one matrix
                parameter.data.copy_(torch.stack([through(matrix.t()).t() for matrix in parameter.data]))
                continue
            matrices = [part for matrix in parameter.data for part in matrix.chunk(parts)]
            packed = torch.cat([through(part) for part in matrices]).view_as(parameter)
            if not twice:  # or the scales of scales would be of all matrices together
                assert torch.equal(packed, through(parameter.data)), "a parameter is packed as its matrices are"
            parameter.data.copy_(packed)


def load_packed(path, quantization):
    config = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=quantization["kind"],
        bnb_4bit_use_double_quant=quantization["double_quant"],
        bnb_4bit_compute_dtype=torch.float32)
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, device_map="cpu",
                                                quantization_config=config)


def load_model(path, precision, quantization):
    packed = load_packed(path, quantization) if quantization else None
    if packed and precision == "fp32":
        pack_experts(packed, quantization)
        return packed
    model = AutoModelForCausalLM.from_pretrained(path, dtype=TYPES[precision])
    with torch.no_grad():
        for name, module in packed.named_modules() if packed else ():
            if isinstance(module, Linear4bit):
                values = dequantize_4bit(module.weight.data, module.weight.quant_state)
                model.get_submodule(name).weight.copy_(values)
    if packed:
        pack_experts(model, quantization)
    return model


def train_model(model, rows, train, batch, micro):
    spec = train["optimizer"]
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=spec["lr"], betas=spec["betas"],
                                  eps=spec["eps"], weight_decay=spec["weight_decay"])
    schedule = train["schedule"]
    scheduler = get_scheduler(
        schedule["kind"] + ("_with_warmup" if schedule["kind"] == "constant" else ""), optimizer,
        num_warmup_steps=math.ceil(schedule["warmup_ratio"] * schedule["max_steps"]),
        num_training_steps=schedule["max_steps"])
    losses, norms = [], []
    for step in range(schedule["max_steps"]):
        chosen = [(step * batch + i) % len(rows) for i in range(batch)]
        loss = loss_of(model, torch.from_numpy(rows[chosen].astype("int64")), micro)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, spec["grad_clip"] or math.inf)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        norms.append(norm.item())
    return {"losses": losses, "grad_norms": norms}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--model", "--rows", "--train", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--micro", type=int, help="rows of a micro-batch; the whole batch")
    parser.add_argument("--adapter", help="PEFT directory that is trained instead of the model")
    options = parser.parse_args()
    train = json.loads(pathlib.Path(options.train).read_text(encoding="utf-8"))
    precision = train["fsdp"]["mixed_precision"]
    torch.set_num_threads(1)
    model = load_model(options.model, precision, train.get("quantization"))
    if routers_of(model):
        model.set_experts_implementation("eager")  # others know neither fp64 nor odd widths
    widened = widen(model) if precision == "fp64" else None
    if options.adapter:
        model = PeftModel.from_pretrained(model, options.adapter, is_trainable=True)
        if precision == "fp64":
            model.double()
    model.config.use_cache = False
    model.train()
    curves = train_model(model, numpy.load(options.rows), train, options.batch, options.micro or options.batch)
    if widened:
        widened.check_used()
    pathlib.Path(options.out).write_text(json.dumps(curves), encoding="utf-8")


if __name__ == "__main__":
    main()
