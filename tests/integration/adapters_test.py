"""Adapters from the job file to text: trained beside frozen weights, killed, merged, used."""

import json
import pathlib
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, read_metrics, run, trajectory, wait_until  # noqa: E402
from mxfp4_model import read_tensors  # noqa: E402

STEPS = 60


def floats(tensor):
    """The numbers of a tensor of safetensors."""
    kind, _, data = tensor
    if kind == "BF16":
        data = b"".join(b"\0\0" + data[at:at + 2] for at in range(0, len(data), 2))
    return struct.unpack(f"<{len(data) // 4}f", data)


class Adapters(unittest.TestCase):
    trained = None  # the output of a job that some cases look at

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(None)
        cls.addClassCleanup(cls.cluster.close)

    def output(self):
        if self.trained is None:
            type(self).trained = self.finished(self.cluster.submit(self.job()))
        return self.trained

    def job(self, **train):
        return self.cluster.train_job(steps=STEPS, lora={"r": 4, "alpha": 8}, **train)

    def finished(self, job):
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        return self.cluster.output(job)

    def test_a_killed_rank_changes_no_loss_by_a_bit(self):
        """The frozen weights, in four bits, are still in memory; the adapters come from the snapshot."""
        options = {"quantization": {"kind": "nf4"}}
        calm = self.finished(self.cluster.submit(self.job(**options)))
        expected = trajectory(calm)
        self.assertEqual(len(expected), STEPS)
        job = self.cluster.submit(self.job(**options))
        for step, rank in ((15, 1), (35, 0)):
            self.cluster.wait_for_step(job, step)
            self.cluster.kill_rank(job, rank)
        self.assertEqual(trajectory(self.finished(job)), expected)
        self.assertEqual([attempt["resumed_from"] for attempt in self.cluster.get(job)["attempts"]],
                         ["start", "snapshot", "snapshot"])
        for generation in ("2", "3"):
            log = self.cluster.output(job) / "logs" / generation / "rank-0.log"
            self.assertIn("the frozen weights were still in memory", log.read_text())

    def test_a_merged_adapter_says_what_the_adapter_says(self):
        output = self.output()
        self.assertFalse((output / "model").exists())
        config = json.loads((output / "adapter" / "adapter_config.json").read_text())
        self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"]), ("LORA", 4, 8))
        model = pathlib.Path(config["base_model_name_or_path"])
        self.assertTrue(model.is_absolute())
        merged = output / "merged"
        run("muster-trainer", "merge", "--adapter", output / "adapter", "--model", model, "--out",
            merged)
        with_adapter = self.generated("--model", model, "--adapter", output / "adapter")
        self.assertEqual(with_adapter, self.generated("--model", merged))
        self.assertNotEqual(with_adapter, self.generated("--model", model))

    def test_an_adapter_over_four_bits_is_added_to_the_weights_from_before(self):
        """And not to what the four bits say, which is elsewhere by more than the adapter adds."""
        output = self.finished(self.cluster.submit(self.cluster.train_job(
            steps=4, lora={"r": 4, "alpha": 8, "target_modules": ["o_proj"]}, quantization={"kind": "nf4"})))
        model, merged = self.cluster.model(), output / "merged"
        run("muster-trainer", "merge", "--adapter", output / "adapter", "--model", model, "--out", merged)
        base, sums = read_tensors(model), read_tensors(merged)
        adapter = read_tensors(output / "adapter", "adapter_model.safetensors")
        self.assertEqual(sums.keys(), base.keys())
        for name, tensor in base.items():
            if "o_proj" not in name:
                self.assertEqual(sums[name], tensor, name)
        path = "model.layers.0.self_attn.o_proj"
        a, b = (floats(adapter[f"base_model.model.{path}.lora_{factor}.weight"]) for factor in "AB")
        before, after = floats(base[f"{path}.weight"]), floats(sums[f"{path}.weight"])
        columns = len(a) // 4
        for at in range(3 * columns):  # the first rows
            added = 8 / 4 * sum(b[at // columns * 4 + k] * a[k * columns + at % columns] for k in range(4))
            self.assertAlmostEqual(after[at], before[at] + added, delta=1e-6 + abs(after[at]) / 256)
        self.assertNotEqual(after, before)

    def test_a_merged_adapter_has_the_tokens_that_the_job_added(self):
        base = self.cluster.model()
        spec = self.cluster.train_job(
            steps=4, lora={"r": 4, "dropout": 0.1, "modules_to_save": ["embed_tokens", "lm_head"]})
        spec["train"]["model"].update({"add_tokens": ["<|x|>"], "pad_vocab_to": 640})
        output = self.finished(self.cluster.submit(spec))
        merged = output / "merged"
        run("muster-trainer", "merge", "--adapter", output / "adapter", "--model", base, "--out",
            merged)
        self.assertEqual(json.loads((merged / "config.json").read_text())["vocab_size"], 640)
        self.assertEqual((merged / "tokenizer.json").read_bytes(),
                         (output / "adapter" / "tokenizer.json").read_bytes())
        self.assertEqual(len(self.generated("--model", merged)), 24)

    def generated(self, *arguments):
        done = run("muster-trainer", "generate", *arguments, "--dtype", "float32", "--json",
                   "--prompt", "Hello", "--max-new-tokens", "24")
        return json.loads(done.stdout)["ids"]

    def exported(self, checkpoint, directory):
        run("muster-trainer", "export", "--format", "hf", "--checkpoint", checkpoint, "--out",
            directory)
        return {path.name: path.read_bytes() for path in directory.iterdir()}

    def test_a_checkpoint_becomes_the_adapter_that_the_job_has_written(self):
        output = self.output()
        written = {path.name: path.read_bytes() for path in (output / "adapter").iterdir()}
        self.assertEqual(self.exported(output / "checkpoints", output / "again"), written)

    def test_a_cancelled_job_leaves_its_adapter_in_a_checkpoint(self):
        job = self.cluster.submit(self.job())
        self.cluster.wait_for_step(job, 45)
        self.cluster.muster("cancel", job)
        self.cluster.wait(job)
        output = self.cluster.output(job)
        self.assertFalse((output / "adapter").exists())
        files = self.exported(output / "checkpoints", output / "stopped")
        config = json.loads(files["adapter_config.json"])
        self.assertEqual((config["r"], config["lora_alpha"]), (4, 8))
        listed = json.loads(run("muster-trainer", "checkpoints", output, "--json").stdout)
        self.assertEqual(listed[0]["adapter"]["base_model"], config["base_model_name_or_path"])
        model = config["base_model_name_or_path"]
        with_adapter = self.loss("--model", model, "--adapter", output / "stopped")
        self.assertLess(with_adapter, self.loss("--model", model))

    def loss(self, *arguments):
        done = run("muster-trainer", "score", *arguments, "--data",
                   self.cluster.path("rows.jsonl"), "-o", "json", timeout=90)
        return json.loads(done.stdout)["mean_loss"]

    def test_an_adapter_of_another_form_is_refused(self):
        output = self.output()
        other = self.cluster.train_job(
            steps=4, lora={"r": 8, "init_from": str(output / "adapter")})
        job = self.cluster.submit(other)
        self.assertNotEqual(self.cluster.wait(job), 0)
        self.assertIn("r is 4, the job's lora has 8", self.cluster.describe(job))


class OnOtherNodes(unittest.TestCase):
    """Adapters move between ranks and nodes; frozen weights are read wherever ranks come up."""

    STEPS = 30

    def setUp(self):
        self.cluster = Cluster(self, nodes=3)

    def job(self, nodes, resources=None, **train):
        # A sum over another number of ranks differs only in its last bits.
        spec = self.cluster.train_job(
            steps=self.STEPS, every=10, nodes=nodes, lora={"r": 4, "alpha": 8},
            quantization={"kind": "nf4"}, fsdp={"mixed_precision": "fp64"}, **train)
        spec["resources"].update(resources or {})
        return spec

    def finished(self, job):
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        return self.cluster.output(job)

    def lose_a_node(self, job, at_step):
        self.cluster.wait_for_step(job, at_step)
        # That of step 10 is committed beside the steps.
        wait_until(lambda: self.cluster.checkpoints(job), "a checkpoint is committed")
        lost = self.cluster.get(job)["ranks"][-1]["node"]
        self.cluster.kill_node(lost, job)
        wait_until(lambda: len(self.cluster.get(job)["attempts"]) > 1, "the job goes on")
        return lost

    def adapter(self, output):
        return (output / "adapter" / "adapter_model.safetensors").read_bytes()

    def test_a_rank_on_another_node_goes_on_with_the_same_bits(self):
        calm = self.finished(self.cluster.submit(self.job(nodes=2)))
        job = self.cluster.submit(self.job(nodes=2, resources={"spares": 1}))
        lost = self.lose_a_node(job, at_step=12)
        output = self.finished(job)
        attempt = self.cluster.get(job)["attempts"][1]
        self.assertEqual((attempt["tier"], attempt["resumed_from"]), ("spare", "snapshot"))
        self.assertNotIn(lost, attempt["nodes"])
        self.assertEqual(trajectory(output), trajectory(calm))
        self.assertEqual(self.adapter(output), self.adapter(calm))

    def test_fewer_ranks_go_on_from_a_snapshot_and_from_a_checkpoint(self):
        calm = trajectory(self.finished(self.cluster.submit(self.job(nodes=3))))
        for source, snapshot in (("snapshot", {"every": 1}), ("checkpoint", {"every": 0})):
            with self.subTest(source=source):
                job = self.cluster.submit(
                    self.job(nodes=3, resources={"min_nodes": 2}, snapshot=snapshot))
                self.lose_a_node(job, at_step=12)
                output = self.finished(job)
                attempt = self.cluster.get(job)["attempts"][1]
                self.assertEqual((attempt["tier"], attempt["world_size"], attempt["resumed_from"]),
                                 ("shrink", 2, source))
                self.assertEqual(read_metrics(output)[self.STEPS]["world_size"], 2)
                self.assertEqual(len(trajectory(output)), len(calm))
                for got, want in zip(trajectory(output), calm):
                    self.assertEqual(got[0], want[0])
                    self.assertAlmostEqual(got[1] / want[1], 1, delta=1e-9)
                    self.assertAlmostEqual(got[2] / want[2], 1, delta=1e-8)
                self.cluster.up()
                self.cluster.wait_until_ready()


if __name__ == "__main__":
    unittest.main()
