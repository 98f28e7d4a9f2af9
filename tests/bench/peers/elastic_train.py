"""A worker of torchrun: FSDP2 on Gloo, steps of about 50 ms, a DCP checkpoint every 5 steps.

  torchrun ... elastic_train.py FOLDER

Goes on from the newest checkpoint in FOLDER, writes its pid to FOLDER/pid-RANK, and rank 0 a line "START
STEP" to FOLDER/steps for each finished step, START being when this worker was started (Unix seconds).
"""

import os
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

CHECKPOINT_EVERY = 5
KEEP = 2
STEP_S = 0.05
WIDTH, LAYERS = 512, 12  # 3.1 M parameters


def newest(folder):
    """The newest checkpoint that was finished, and its step."""
    done = [p.parent for p in folder.glob("checkpoint-*/.metadata")]
    return max(((int(p.name.split("-")[1]), p) for p in done), default=(0, None))


def build():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)


def state_of(model, optimizer):
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


def train_step(model, optimizer):
    began = time.monotonic()
    loss = model(torch.randn(8, WIDTH)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(max(0.0, STEP_S - (time.monotonic() - began)))


def main():
    started = time.time()
    folder = pathlib.Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    (folder / f"pid-{rank}").write_text(str(os.getpid()), encoding="ascii")
    model, optimizer = build()
    step, checkpoint = newest(folder)
    if checkpoint:
        state = state_of(model, optimizer)
        dcp.load(state, checkpoint_id=checkpoint)
        set_state_dict(model, optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])
    while True:
        train_step(model, optimizer)
        step += 1
        if step % CHECKPOINT_EVERY == 0:
            dcp.save(state_of(model, optimizer), checkpoint_id=folder / f"checkpoint-{step}")
            old = folder / f"checkpoint-{step - KEEP * CHECKPOINT_EVERY}"
            if rank == 0 and old.exists():
                shutil.rmtree(old)
        if rank == 0:
            with open(folder / "steps", "a", encoding="ascii") as file:
                file.write(f"{started} {step}\n")


if __name__ == "__main__":
    main()
