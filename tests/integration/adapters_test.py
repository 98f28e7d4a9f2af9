"""Adapters from the job file to text: trained beside frozen weights, killed, merged, used."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, run, trajectory  # noqa: E402

STEPS = 60


class Adapters(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(self)

    def job(self, **train):
        return self.cluster.train_job(steps=STEPS, lora={"r": 4, "alpha": 8}, **train)

    def finished(self, job):
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        return self.cluster.output(job)

    def test_a_killed_rank_changes_no_loss_by_a_bit(self):
        """The frozen weights are read anew, in four bits; the adapters come from the snapshot."""
        options = {"quantization": {"kind": "nf4"}}
        calm = self.finished(self.cluster.submit(self.job(**options)))
        expected = trajectory(calm)
        self.assertEqual(len(expected), STEPS)
        job = self.cluster.submit(self.job(**options))
        self.cluster.wait_for_step(job, 25)
        self.cluster.kill_rank(job, 1)
        self.assertEqual(trajectory(self.finished(job)), expected)
        self.assertEqual(self.cluster.get(job)["attempts"][1]["resumed_from"], "snapshot")

    def test_a_merged_adapter_says_what_the_adapter_says(self):
        output = self.finished(self.cluster.submit(self.job()))
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
        output = self.finished(self.cluster.submit(self.job()))
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
        output = self.finished(self.cluster.submit(self.job()))
        other = self.cluster.train_job(
            steps=4, lora={"r": 8, "init_from": str(output / "adapter")})
        job = self.cluster.submit(other)
        self.assertNotEqual(self.cluster.wait(job), 0)
        self.assertIn("r is 4, the job's lora has 8", self.cluster.describe(job))


if __name__ == "__main__":
    unittest.main()
