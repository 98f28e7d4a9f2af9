"""Every family loses a rank and goes on in place, loses a node and goes on with fewer ranks: each step's loss and
gradient norm are those of a run that nothing disturbs, bit for bit.

A step adds in another order where there are fewer ranks. The undisturbed run has therefore as many ranks at each
step as the job had: it is stopped where the job lost its node, and started again by hand from its checkpoint.
"""

import concurrent.futures
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, Cluster, descendants, kill, read_metrics, run, trajectory, wait_until  # noqa: E402
from families import FAMILIES, MIXTURES  # noqa: E402
from gang import Gang  # noqa: E402

ON_EXPERTS = {"lora": {"r": 4, "alpha": 8, "target_modules": ["o_proj", "mlp.experts.gate_up_proj",
                                                               "mlp.experts.down_proj"]}}
CASES = [*((family, {}) for family in ("granite", "phi3", "gemma2", "gemma3", *MIXTURES)),
         ("gpt_oss", ON_EXPERTS), ("gemma2", {"lora": {"r": 4, "alpha": 8}, "quantization": {"kind": "nf4"}})]
STEPS_ALONE = 8


class EveryFamily(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(self, slots=len(CASES))
        self.specs = {}

    def submit(self, family, train):
        plain = json.loads((self.cluster.model() / "config.json").read_text(encoding="utf-8"))
        config, model = self.cluster.path(f"{family}.json"), self.cluster.path(family)
        if not model.exists():
            config.write_text(json.dumps({**plain, **{**FAMILIES, **MIXTURES}[family]}), encoding="utf-8")
            run("muster-trainer", "init-model", "--config", config, "--out", model)
        spec = self.cluster.train_job(model=model, name=f"{family}-{len(self.specs)}", every=1000,
                                      schedule={"kind": "constant", "warmup_ratio": 0, "max_steps": 10**5}, **train)
        spec["resources"]["min_nodes"] = 1
        spec["restart"] = {"standbys": 0}
        self.specs[self.cluster.submit(spec)] = spec

    def goes_on(self, job, generation, steps):
        def done():
            metrics = read_metrics(self.cluster.output(job)).values()
            return sum(entry["generation"] >= generation for entry in metrics) >= steps
        wait_until(done, f"generation {generation} of {job} has done {steps} steps", timeout=120)

    def kill_node(self, node):
        pids = [self.cluster.worker_pid(node)]
        for job in self.specs:
            guardian = self.cluster.guardians(job)[node]
            pids += [guardian, *descendants(guardian)]
        for pid in pids:
            kill(pid)

    def train_by_hand(self, spec, world, steps):
        train = spec["train"]
        train["schedule"]["max_steps"] = steps
        train["batch"] = {"per_rank": 2, "accumulation": 2 // world}
        spec["resources"] = {"nodes": 1, "ranks_per_node": world}
        file = self.cluster.path(f"{spec['name']}-{world}.yaml")
        file.write_text(json.dumps(spec), encoding="utf-8")
        with Gang([BIN / "muster-trainer", "train", file], world=world, logs=self.cluster.path(file.stem),
                  env={"MUSTER_MICRO_BATCH_PAUSE": 0}) as gang:
            gang.wait(120)

    def undisturbed(self, job):
        """The job's trajectory as it has to be."""
        spec, lost_at = self.specs[job], self.cluster.get(job)["attempts"][2]["resumed_step"]
        steps = max(read_metrics(self.cluster.output(job)))
        spec["train"]["output"]["dir"] += "-calm"
        self.train_by_hand(spec, world=2, steps=lost_at)
        self.train_by_hand(spec, world=1, steps=steps)
        return trajectory(spec["train"]["output"]["dir"])

    def test_loses_a_rank_and_then_a_node(self):
        for family, train in CASES:
            self.submit(family, train)
        for job in self.specs:
            self.cluster.wait_for_step(job, 3)
            self.cluster.kill_rank(job, 1)
        for job in self.specs:
            self.goes_on(job, generation=2, steps=2)
        self.kill_node("node-1")
        for job in self.specs:
            self.goes_on(job, generation=3, steps=STEPS_ALONE)
            self.cluster.muster("cancel", job)
        for job in self.specs:
            self.cluster.wait(job)
            self.assertEqual([(each["tier"], each["world_size"], each["resumed_from"])
                              for each in self.cluster.get(job)["attempts"][1:]],
                             [("in_place", 2, "snapshot"), ("shrink", 1, "snapshot")], self.cluster.describe(job))
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            calm = dict(zip(self.specs, pool.map(self.undisturbed, self.specs)))
        for job, spec in self.specs.items():
            with self.subTest(job=spec["name"]):
                self.assertEqual(trajectory(self.cluster.output(job)), calm[job])


if __name__ == "__main__":
    unittest.main()
