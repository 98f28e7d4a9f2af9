"""Evaluations of a job on two nodes: the same numbers whatever is killed, the best state kept and
exported, early stop, and the messages about bad input."""

import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, Cluster, run, trajectory, wait_until  # noqa: E402
from gang import Gang  # noqa: E402

STEPS = 40
EVERY = 5
PROMPTS = ["12 plus 15", "21 plus 10", "17 plus 17"]
NEW_TOKENS = 40


def lines(path):
    if not path.exists():
        return []
    # The last line may be half written while the job runs.
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def evaluations(output):
    """What must be equal between runs, by step: one that was made again counts as it was last."""
    keys = ("loss", "perplexity", "accuracy", "tokens", "best_step", "best_loss", "without_better")
    return {entry["step"]: [entry[key] for key in keys]
            for entry in lines(output / "eval.jsonl")}


def samples(output):
    """The last texts that were made after a step, by step and prompt."""
    return {(entry["step"], entry["prompt"]): (entry["text"], entry["tokens"], entry["ended"])
            for entry in lines(output / "samples.jsonl")}


def checkpoint_steps(cluster, job):
    return [checkpoint["step"] for checkpoint in cluster.json("checkpoints", job)]


class Evaluated(unittest.TestCase):
    """Answers of these rows are learned, and contradicted later: the best state is on the way."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(None)
        cls.addClassCleanup(cls.cluster.close)
        cls.rows = cls.cluster.path("eval.jsonl")
        cls.rows.write_text("".join(
            json.dumps({"prompt": f"{a} plus {a + 1}", "completion": f"{2 * a + 1}" + "zz"}) + "\n"
            for a in range(22, 29)), encoding="utf-8")
        calm = cls.cluster.submit(cls.job())
        assert cls.cluster.wait(calm) == 0, cls.cluster.describe(calm)
        cls.calm = calm
        cls.output = cls.cluster.output(calm)

    @classmethod
    def job(cls, samples=PROMPTS, evaluation=None, **train):
        spec = cls.cluster.train_job(steps=STEPS, every=EVERY, **train)
        spec["train"]["data"]["eval"] = str(cls.rows)
        spec["train"]["optimizer"]["lr"] = 3.0e-3
        spec["train"]["checkpoint"]["keep"] = 1
        spec["train"]["eval"] = {"every": EVERY, "max_new_tokens": NEW_TOKENS, "samples": samples,
                                 **(evaluation or {})}
        spec["train"]["output"]["export"] = "best"
        return spec

    def best(self):
        return lines(self.output / "eval.jsonl")[-1]["best_step"]

    def test_a_killed_rank_changes_no_evaluation_by_a_bit(self):
        """Once within an evaluation and once in the steps behind one."""
        expected = evaluations(self.output)
        self.assertEqual(sorted(expected), list(range(EVERY, STEPS + 1, EVERY)))
        for rank, kill in ((1, self.kill_within_an_evaluation), (0, self.kill_behind_one)):
            with self.subTest(kill=kill.__name__):
                job = self.cluster.submit(self.job())
                kill(job, rank)
                self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
                failed, after = self.cluster.get(job)["attempts"]
                self.assertEqual((failed["failed_rank"], after["resumed_from"]), (rank, "snapshot"))
                if kill == self.kill_within_an_evaluation:
                    self.assertEqual(failed["card"]["phase"], "evaluating")
                    self.assertEqual(after["resumed_step"] % EVERY, 0)
                output = self.cluster.output(job)
                self.assertEqual(trajectory(output), trajectory(self.output))
                self.assertEqual(evaluations(output), expected)
                self.assertEqual(samples(output), samples(self.output))
                self.assertEqual(checkpoint_steps(self.cluster, job),
                                 checkpoint_steps(self.cluster, self.calm))
                self.assertEqual((output / "model" / "model.safetensors").read_bytes(),
                                 (self.output / "model" / "model.safetensors").read_bytes())

    def kill_within_an_evaluation(self, job, rank):
        """The newest evaluation that has its loss and no finished prompt yet."""
        pids = self.cluster.ranks(job)
        output = self.cluster.output(job)

        def evaluating():
            told = {entry["step"] for entry in lines(output / "eval.jsonl")}
            return told - {entry["step"] for entry in lines(output / "samples.jsonl")}
        wait_until(evaluating, f"job {job} evaluates")
        os.kill(pids[rank], 9)

    def kill_behind_one(self, job, rank):
        """Whose checkpoint is written: one that is lost is no longer the best."""
        pids = self.cluster.ranks(job)
        self.cluster.wait_for_step(job, 2 * EVERY + 1)
        # Looked for among the files: to ask the coordinator can take longer than the steps that are left.
        wait_until(lambda: any(int(folder.name.split("-")[1]) >= 2 * EVERY
                               for folder in self.cluster.checkpoints(job)),
                   f"a checkpoint of {job} is committed")
        os.kill(pids[rank], 9)

    def test_the_best_checkpoint_stays_and_is_what_is_exported(self):
        best = self.best()
        self.assertLess(best, STEPS - EVERY, "or retention would keep it anyway")
        found = {entry["step"]: entry["loss"] for entry in lines(self.output / "eval.jsonl")}
        self.assertEqual(found[best], min(found.values()))
        manifests = {path.name: json.loads((path / "manifest.json").read_text())
                     for path in self.cluster.checkpoints(self.calm)}
        self.assertEqual({m["step"]: m["eval_loss"] for m in manifests.values()},
                         {best: found[best], STEPS: found[STEPS]})
        score = json.loads(run("muster-trainer", "score", "--model", self.output / "model",
                               "--data", self.rows, "--max-seq-len", 128, "-o", "json").stdout)
        self.assertEqual((score["count"], score["tokens"]),
                         (7, lines(self.output / "eval.jsonl")[0]["tokens"]))
        self.assertAlmostEqual(score["mean_loss"], found[best], delta=1e-5)
        self.assertGreater(found[STEPS] - found[best], 1e-3, "the last state would score otherwise")

    def test_losses_of_evaluations_are_shown_with_checkpoints(self):
        found = {entry["step"]: entry["loss"] for entry in lines(self.output / "eval.jsonl")}
        expected = {step: found[step] for step in (self.best(), STEPS)}
        for answer in (self.cluster.json("get", self.calm), self.cluster.json("describe", self.calm),
                       self.cluster.json("wait", self.calm)):
            self.assertEqual({c["step"]: c["eval_loss"] for c in answer["checkpoints"]}, expected)
        table = self.cluster.muster("checkpoints", self.calm).stdout
        for text in ("EVAL LOSS", *(f"{loss:.4f}" for loss in expected.values())):
            self.assertIn(text, table)
        self.assertIn(f"evaluation loss {expected[STEPS]:.4f}", self.cluster.describe(self.calm))
        listed = json.loads(run("muster-trainer", "checkpoints", self.output, "--json").stdout)
        self.assertEqual({c["step"]: c["best"] for c in listed},
                         {step: step == self.best() for step in expected})

    def test_samples_are_what_the_exported_model_says(self):
        made = samples(self.output)
        self.assertEqual(len(made), len(PROMPTS) * STEPS // EVERY)
        for prompt in PROMPTS:
            with self.subTest(prompt=prompt):
                said = json.loads(run(
                    "muster-trainer", "generate", "--model", self.output / "model", "--chat",
                    "--prompt", prompt, "--max-new-tokens", NEW_TOKENS, "--dtype", "float32",
                    "--json").stdout)
                self.assertEqual((said["text"], len(said["ids"]),
                                  said["finish_reason"] == "end_of_text"),
                                 made[self.best(), prompt])

    def test_a_job_that_stops_early_has_succeeded_and_does_not_go_on(self):
        # This much is never gained: the second evaluation and the third are not better.
        spec = self.job(samples=[], evaluation={"early_stop": {"patience": 2, "min_delta": 100}})
        job = self.cluster.submit(spec, "--key", "stops-early")
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        output = self.cluster.output(job)
        got = self.cluster.get(job)
        self.assertEqual((got["state"], got["step"]), ("succeeded", 3 * EVERY))
        self.assertEqual(sorted(evaluations(output)), [EVERY, 2 * EVERY, 3 * EVERY])
        self.assertTrue((output / "model" / "config.json").exists())
        self.assertIn(f"training ends after step {3 * EVERY} of {STEPS}",
                      self.cluster.describe(job))
        self.assertEqual(self.cluster.submit(spec, "--key", "stops-early"), job)
        self.assertEqual(len(self.cluster.get(job)["attempts"]), 1)
        # Nor do its ranks, when they are started by hand.
        before = trajectory(output)
        with Gang([BIN / "muster-trainer", "train", self.cluster.write_job(spec)], world=2,
                  logs=self.cluster.path("again")) as gang:
            gang.wait(60)
        self.assertEqual(trajectory(output), before)
        self.assertIn(f"going on after step {3 * EVERY}", gang.log_ends())


class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(None, nodes=1)
        cls.addClassCleanup(cls.cluster.close)

    def job(self, data, evaluation=None):
        spec = self.cluster.train_job(steps=10, nodes=1)
        spec["train"]["data"].update(data)
        spec["train"]["eval"] = evaluation or {}
        return spec

    def expect_failure(self, words, *args, **kwargs):
        job = self.cluster.submit(self.job(*args, **kwargs))
        self.assertEqual(self.cluster.wait(job), 10, self.cluster.describe(job))
        got = self.cluster.get(job)
        self.assertEqual((len(got["attempts"]), got["step"]), (1, 0), "it is not tried again")
        timeline = self.cluster.describe(job)
        for word in words:
            self.assertIn(word, timeline)

    def test_rows_that_are_not_there(self):
        missing = self.cluster.path("none.jsonl")
        self.expect_failure([str(missing), "train.data.eval"], {"eval": str(missing)})

    def test_no_rows(self):
        empty = self.cluster.path("empty.jsonl")
        empty.write_text("\n", encoding="utf-8")
        self.expect_failure([str(empty), "no rows"], {"eval": str(empty)})

    def test_a_row_that_is_broken(self):
        broken = self.cluster.path("broken.jsonl")
        broken.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a"\n', encoding="utf-8")
        self.expect_failure([f"{broken}:2"], {"eval": str(broken)})

    def test_a_prompt_that_leaves_no_room(self):
        self.expect_failure(["train.eval.samples: prompt 2", "train.data.max_seq_len: 128"],
                            {"eval_ratio": 0.5}, {"samples": ["short", "long " * 40]})

    def test_a_part_that_leaves_no_rows(self):
        self.expect_failure(["train.data.eval_ratio", "144 rows"], {"eval_ratio": 1e-9})

    def test_what_the_job_file_cannot_ask_for(self):
        for data, evaluation, key in (({"eval_ratio": 0}, {}, "train.data.eval_ratio"),
                                      ({"eval_ratio": 1}, {}, "train.data.eval_ratio"),
                                      ({}, {"every": 5}, "train.eval")):
            with self.subTest(key=key, data=data):
                file = self.cluster.write_job(self.job(data, evaluation))
                done = self.cluster.muster("submit", file, check=False)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                line = 1 + next(number for number, text in enumerate(
                    file.read_text(encoding="utf-8").split("\n"))
                    if f'"{key.rsplit(".", 1)[1]}"' in text)
                self.assertIn(f"{file.name}:{line}", done.stderr)
                self.assertIn(key, done.stderr)


if __name__ == "__main__":
    unittest.main()
