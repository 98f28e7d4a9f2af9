"""Ranks of a real gang with experts, killed at named points of a step, one after the other, with and without
fsdp.expert_parallel: the peer goes on in place, and every step's loss and gradient norm are those of a run that
nothing disturbs, bit for bit.

doomed_rank.cc is the program that the ranks run here.
"""

import json
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, Cluster, read_metrics, run, trajectory, trajectory_of, wait_until  # noqa: E402
from families import MIXTURES  # noqa: E402
from gang import Gang  # noqa: E402

DOOMED = BIN.parent / "tests" / "doomed_rank"
# What doomed_rank.cc counts in a step. Blocks 0 and 1 have experts.
WHOLE = {
    "before the router chooses": "forward aten::topk 2",
    "rows go to their experts": "forward aten::index_select 2",
    "experts forward": "forward weighted_swiglu 2",
    "rows of experts are put together": "forward sum_rows 2",
    "experts backward": "backward weighted_swiglu_backward 1",
    "rows' gradients are put together": "backward sum_rows 1",
    "router backward": "backward aten::scatter_add_ 1",
    "gradients are reduced": "backward reduce_scatter_wait 2",
    "optimizer": "update adamw 3",
    "checkpoint": "checkpoint sync 1",
}
DIVIDED = {
    **WHOLE,
    "counts of rows are gathered": "forward all_gather_wait 1",
    "rows are sent": "forward all_to_all 1",
    "rows are on their way": "forward all_to_all_wait 1",
    "weights of rows are on their way": "forward all_to_all_wait 2",
    "rows come back": "forward all_to_all_wait 3",
    "gradients are sent": "backward all_to_all 1",
    "gradients are on their way": "backward all_to_all_wait 1",
    "gradients come back": "backward all_to_all_wait 2",
}


class MixtureKills(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(None, slots=2)
        cls.addClassCleanup(cls.cluster.close)
        cls.doom = cls.cluster.path("doom")
        cls.doom.mkdir()
        trainer = cls.cluster.path("trainer.sh")
        trainer.write_text(f'''#!/bin/sh
[ "$1" = train ] && MUSTER_DOOM="{cls.doom}" exec "{DOOMED}" "$@"
exec "{BIN}/muster-trainer" "$@"
''', encoding="utf-8")
        trainer.chmod(0o755)
        for node in cls.cluster.json("nodes"):
            cls.cluster.restart_worker(node["name"], "--trainer", trainer)
        plain = json.loads((cls.cluster.model() / "config.json").read_text(encoding="utf-8"))
        config = cls.cluster.path("config.json")
        config.write_text(json.dumps({**plain, **MIXTURES["qwen3_moe"], "output_router_logits": True}), encoding="utf-8")
        cls.mixture = cls.cluster.path("mixture")
        run("muster-trainer", "init-model", "--config", config, "--out", cls.mixture)

    def calm(self, job, steps):
        """The trajectory of the job up to this step, of ranks that no daemon starts."""
        job["resources"] = {"nodes": 1, "ranks_per_node": 2}
        job["train"]["schedule"]["max_steps"] = steps
        output = self.cluster.path(f"calm-{job['name']}")
        job["train"]["output"]["dir"] = str(output)
        file = self.cluster.path(f"calm-{job['name']}.yaml")
        file.write_text(json.dumps(job), encoding="utf-8")
        with Gang([BIN / "muster-trainer", "train", file], world=2, logs=output / "logs",
                  env={"MUSTER_MICRO_BATCH_PAUSE": 0}) as gang:
            gang.wait(120)
        return trajectory(output)

    def strike(self, job, rank, point):
        """Once the gang has done a step after it."""
        generation = self.cluster.get(job)["generation"]
        new, file = self.doom / f"{job}.new", self.doom / job
        new.write_text(f"{rank} {point}\n", encoding="utf-8")
        new.rename(file)
        wait_until(lambda: not file.exists(), f"rank {rank} comes to '{point}'", timeout=60)
        output = self.cluster.output(job)
        wait_until(lambda: any(entry["generation"] > generation for entry in read_metrics(output).values()),
                   f"the gang goes on after '{point}'", timeout=60)

    def kill_at_each(self, points, **fsdp):
        spec = self.cluster.train_job(
            model=self.mixture, schedule={"kind": "constant", "warmup_ratio": 0, "max_steps": 10**5},
            fsdp={"mixed_precision": "fp32", **fsdp})
        job = self.cluster.submit(spec)
        self.cluster.wait_for_step(job, 3)
        output = self.cluster.output(job)
        for number, point in enumerate(points.values()):
            self.strike(job, number % 2, point)
        self.cluster.muster("cancel", job)
        self.cluster.wait(job)
        attempts = self.cluster.get(job)["attempts"]
        self.assertEqual([attempt.get("tier") for attempt in attempts[1:]], ["in_place"] * len(points),
                         self.cluster.describe(job))
        done = read_metrics(output)
        self.assertEqual(self.calm(spec, max(done)), trajectory_of(done))

    def test_experts_of_every_rank(self):
        self.kill_at_each(WHOLE)

    def test_experts_that_ranks_divide(self):
        self.kill_at_each(DIVIDED, expert_parallel=2)


if __name__ == "__main__":
    unittest.main()
