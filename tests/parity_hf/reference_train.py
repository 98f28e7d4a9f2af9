"""Trains a model of transformers in plain Python, by the letter of a job file.

  python reference_train.py --model DIR --rows rows.npy --train TRAIN.json --batch 4 --out FILE

--train is the `train` block of a job file as JSON, --batch the rows of a whole step over all ranks
and micro-batches: step s trains on rows [s * batch, (s + 1) * batch) in one forward. Writes the
losses as JSON. `fsdp.mixed_precision` says what is computed in: fp64 or fp32.

transformers narrows to fp32 within its norms and its loss. In fp64 both are lifted, or the curve
would be an fp32 one; the rotary tables stay those of transformers, fp32 values.
"""

import argparse
import json
import math
import pathlib

import numpy
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, get_scheduler

TYPES = {"fp64": torch.float64, "fp32": torch.float32}


def wide_norm(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def loss_of(model, ids):
    logits = model(input_ids=ids).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def train_model(model, rows, train, batch):
    spec = train["optimizer"]
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=spec["lr"], betas=spec["betas"],
                                  eps=spec["eps"], weight_decay=spec["weight_decay"])
    schedule = train["schedule"]
    scheduler = get_scheduler(
        schedule["kind"] + ("_with_warmup" if schedule["kind"] == "constant" else ""), optimizer,
        num_warmup_steps=math.ceil(schedule["warmup_ratio"] * schedule["max_steps"]),
        num_training_steps=schedule["max_steps"])
    losses = []
    for step in range(schedule["max_steps"]):
        chosen = [(step * batch + i) % len(rows) for i in range(batch)]
        loss = loss_of(model, torch.from_numpy(rows[chosen].astype("int64")))
        loss.backward()
        if spec["grad_clip"]:
            torch.nn.utils.clip_grad_norm_(trained, spec["grad_clip"])
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--model", "--rows", "--train", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--adapter", help="PEFT directory that is trained instead of the model")
    options = parser.parse_args()
    train = json.loads(pathlib.Path(options.train).read_text(encoding="utf-8"))
    precision = train["fsdp"]["mixed_precision"]
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=TYPES[precision])
    if precision == "fp64":
        type(model.model.norm).forward = wide_norm
    if options.adapter:
        model = PeftModel.from_pretrained(model, options.adapter, is_trainable=True)
        model.to(TYPES[precision])
    model.config.use_cache = False
    model.train()
    losses = train_model(model, numpy.load(options.rows), train, options.batch)
    pathlib.Path(options.out).write_text(json.dumps(losses), encoding="utf-8")


if __name__ == "__main__":
    main()
