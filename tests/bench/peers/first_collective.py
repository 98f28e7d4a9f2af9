"""One rank: joins its gang as torchrun's environment says, adds a number over all ranks, and writes the time
at which that was done to the file argv[1] (by rank 0)."""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
done = time.time()
assert int(total) == dist.get_world_size()
if dist.get_rank() == 0:
    part = pathlib.Path(sys.argv[1] + ".part")
    part.write_text(repr(done), encoding="ascii")
    os.replace(part, sys.argv[1])
dist.destroy_process_group()
