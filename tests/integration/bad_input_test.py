"""Bad input gets a clear answer and loses nothing, through the real programs."""

import concurrent.futures
import json
import shutil
import socket
import struct
import subprocess
import tempfile
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, DATA, Cluster, init_model, run, train_job, write_rows  # noqa: E402
from families import FAMILIES  # noqa: E402


def weights(model):
    return next(pathlib.Path(model).glob("*.safetensors"))


def truncate(model):
    with open(weights(model), "r+b") as file:
        file.truncate(os.path.getsize(weights(model)) // 2)


def claim_too_much(model):
    """The header says that it is longer than the whole file."""
    with open(weights(model), "r+b") as file:
        file.write(struct.pack("<Q", os.path.getsize(weights(model)) + 1))


def remove_weights(model):
    os.remove(weights(model))


def read_weights(model):
    """The header of its only file, and the bytes behind it."""
    content = weights(model).read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8:end]), content[end:]


def write_weights(model, header, values):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    weights(model).write_bytes(struct.pack("<Q", len(text)) + text + values)


def change_header(change):
    def spoil(model):
        header, values = read_weights(model)
        change(header)
        write_weights(model, header, values)
    return spoil


def change_config(**keys):
    def spoil(model):
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        (model / "config.json").write_text(json.dumps({**config, **keys}), encoding="utf-8")
    return spoil


def put_nan(tensor):
    def spoil(model):
        header, values = read_weights(model)
        begin = header[tensor]["data_offsets"][0]
        write_weights(model, header, values[:begin] + struct.pack("<f", float("nan")) + values[begin + 4:])
    return spoil


# Every family has these.
OUTPUT, DOWN = "model.layers.1.self_attn.o_proj.weight", "model.layers.1.mlp.down_proj.weight"


class BadModelOfEachFamily(unittest.TestCase):
    """Config and weights that contradict each other are refused by name and file before a step is trained."""

    SPOILED = {
        "a tensor is missing": (change_header(lambda h: h.update({"model.other": h.pop(OUTPUT)})),
                                [OUTPUT, "config.json"]),
        "a tensor too many": (change_config(num_hidden_layers=1), ["model.safetensors", "model.layers.1."]),
        "another shape": (change_header(lambda h: h[DOWN]["shape"].reverse()),
                          ["model.safetensors", DOWN, "shape"]),
        "another type": (change_header(lambda h: h[DOWN].update(dtype="I32")),
                         ["model.safetensors", DOWN, "I32"]),
        "an unknown rope": (change_config(rope_scaling={"rope_type": "spiral", "factor": 2.0}),
                            ["config.json", "spiral"]),
        "a number that is none": (put_nan(DOWN), ["model.safetensors", DOWN, "not finite"]),
    }

    def test_it_is_refused_by_name_and_file(self):
        with tempfile.TemporaryDirectory(prefix="muster-test-") as temp:
            folder = pathlib.Path(temp)
            plain = json.loads((init_model(folder / "plain") / "config.json").read_text(encoding="utf-8"))
            rows = write_rows(folder / "rows.jsonl")
            for family, keys in FAMILIES.items():
                whole = folder / family.replace(" ", "-")
                (folder / "config.json").write_text(json.dumps({**plain, **keys}), encoding="utf-8")
                run("muster-trainer", "init-model", "--config", folder / "config.json", "--out", whole)
                for name, (spoil, words) in self.SPOILED.items():
                    with self.subTest(family=family, spoiled=name):
                        model = folder / "spoiled"
                        shutil.copytree(whole, model)
                        spoil(model)
                        (folder / "job.json").write_text(json.dumps(train_job(model, rows, folder / "out", nodes=1)))
                        done = run("muster-trainer", "smoke", folder / "job.json", check=False)
                        shutil.rmtree(model)
                        self.assertNotEqual(done.returncode, 0, done.stdout)
                        for word in words:
                            self.assertIn(word, done.stderr)


class BadModelAndData(unittest.TestCase):
    """Each makes one job fail, at once and for good, while the cluster goes on."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(None)
        cls.addClassCleanup(cls.cluster.close)

    def spoiled_model(self, name, spoil):
        model = self.cluster.path(name)
        shutil.copytree(self.cluster.model(), model)
        spoil(model)
        return model

    def expect_failure(self, words, **train):
        model = train.pop("model_path", None)
        job = self.cluster.submit(self.cluster.train_job(steps=10, model=model, **train))
        self.assertEqual(self.cluster.wait(job), 10, self.cluster.describe(job))
        self.assertEqual(len(self.cluster.get(job)["attempts"]), 1, "bad input is not tried again")
        timeline = self.cluster.describe(job)
        for word in words:
            self.assertIn(word, timeline)

    def test_a_missing_model(self):
        missing = self.cluster.path("no-such-model")
        self.expect_failure([str(missing)], model_path=missing)

    def test_missing_weights(self):
        model = self.spoiled_model("no-weights", remove_weights)
        self.expect_failure([str(model), "safetensors"], model_path=model)

    def test_truncated_weights(self):
        model = self.spoiled_model("truncated", truncate)
        self.expect_failure([str(weights(model)), "truncated"], model_path=model)

    def test_a_header_that_claims_more_than_the_file_holds(self):
        model = self.spoiled_model("long-header", claim_too_much)
        self.expect_failure([str(weights(model)), "header"], model_path=model)

    def expect_data_failure(self, rows, words):
        path = self.cluster.path(f"{self.id().rsplit('.', 1)[1]}.jsonl")
        path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
        self.expect_failure([f"{path}:{len(rows)}", *words],
                            data={"train": str(path), "max_seq_len": 128})

    def test_a_broken_row(self):
        good = DATA.read_text(encoding="utf-8").splitlines()[:2]
        self.expect_data_failure([*good, '{"instruction": "half a r'], [])

    def test_a_row_of_no_known_kind(self):
        good = DATA.read_text(encoding="utf-8").splitlines()[:2]
        self.expect_data_failure([*good, '{"question": "what?"}'], ["messages"])

    def test_missing_data(self):
        missing = self.cluster.path("none.jsonl")
        self.expect_failure([str(missing)], data={"train": str(missing), "max_seq_len": 128})

    def test_a_token_that_the_model_does_not_have(self):
        def rename_a_token(model):
            tokenizer = json.loads((model / "tokenizer.json").read_text())
            vocabulary = tokenizer["model"]["vocab"]
            vocabulary["p"] = 100000
            (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        model = self.spoiled_model("big-tokenizer", rename_a_token)
        self.expect_failure(["rows.jsonl:1", "100000", "vocab_size"], model_path=model)


class BadJobFile(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="muster-test-")
        self.addCleanup(temp.cleanup)
        self.file = pathlib.Path(temp.name) / "job.yaml"
        self.temp = temp.name

    def expect_refused(self, text, words):
        self.file.write_text(text)
        done = run("muster", "submit", self.file, "--dir", self.temp, check=False)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    TRAIN = ("name: x\ntrain:\n  model: {path: m}\n  data: {train: t.jsonl}\n"
             "  schedule: {max_steps: 5}\n")

    def test_an_unknown_key(self):
        self.expect_refused(self.TRAIN + "  optimiser: {lr: 1}\n", ["job.yaml:6", "optimiser"])

    def test_a_wrong_type(self):
        self.expect_refused(self.TRAIN + "  optimizer: {lr: fast}\n",
                            ["job.yaml:6", "train.optimizer.lr", "fast"])

    def test_a_key_that_is_not_acted_on_yet(self):
        self.expect_refused(self.TRAIN + "  fsdp: {mixed_precision: fp8}\n",
                            ["job.yaml:6", "fp8", "not supported"])

    def test_an_override_of_a_key_that_does_not_exist(self):
        self.file.write_text(self.TRAIN)
        done = run("muster", "submit", self.file, "--set", "train.optimizer.speed=1",
                   "--dir", self.temp, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("speed", done.stderr)

    def test_no_such_file(self):
        done = run("muster", "submit", self.temp + "/none.yaml", "--dir", self.temp, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("none.yaml", done.stderr)

    def test_an_output_that_cannot_be_written(self):
        # The last one writes more than fits a buffer, so that it fails before its end.
        for verb in (["version"], ["--help"], ["completion", "bash"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([str(BIN / "muster"), *verb], stdout=full, check=False,
                                      stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 1, verb)
            self.assertEqual(done.stderr,
                             "muster: could not write the output: No space left on device\n", verb)

    def test_a_job_file_that_is_too_large(self):
        self.file.write_text("#" * (2 << 20))
        done = run("muster", "submit", self.file, "--dir", self.temp, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)

    def test_no_cluster(self):
        self.file.write_text(self.TRAIN)
        done = run("muster", "submit", self.file, "--dir", self.temp, check=False)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("muster up", done.stderr)


class BadTrainerCommand(unittest.TestCase):
    def test_an_output_that_cannot_be_written(self):
        tokenize = ["tokenize", "--model", self.model(), "--text", "a"]
        for words in (["version"], ["--help"], ["init-model", "--help"], tokenize):
            with self.subTest(words=words), open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([str(BIN / "muster-trainer"), *map(str, words)], stdout=full, check=False,
                                      stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 1)

    def test_a_model_is_not_overwritten(self):
        model = self.model()
        before = (model / "model.safetensors").read_bytes()
        done = run("muster-trainer", "init-model", "--preset", "tiny", "--seed", 7, "--out", model, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("exists already", done.stderr)
        self.assertEqual((model / "model.safetensors").read_bytes(), before)

    def test_a_number_that_is_none(self):
        done = run("muster-trainer", "generate", "--model", self.model(), "--prompt", "a", "--temperature", "nan",
                   check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--temperature: nan is not a finite number", done.stderr)

    def model(self):
        temp = tempfile.TemporaryDirectory(prefix="muster-test-")
        self.addCleanup(temp.cleanup)
        return init_model(pathlib.Path(temp.name) / "model")


class BadStart(unittest.TestCase):
    def test_the_coordinators_port_is_taken(self):
        with socket.socket() as taken, tempfile.TemporaryDirectory() as temp:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = run("muster-coordinator", "--dir", temp, "--listen", f"127.0.0.1:{port}",
                       check=False, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(str(port), done.stderr)
            self.assertIn("taken", done.stderr)

    def test_an_address_that_others_can_reach_is_refused(self):
        with tempfile.TemporaryDirectory() as temp:
            done = run("muster-coordinator", "--dir", temp, "--listen", "0.0.0.0:0", check=False,
                       timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("--tls-listen", done.stderr)

    def test_a_node_whose_directory_was_lost_is_named_with_the_reason(self):
        cluster = Cluster(self, nodes=2)
        job = cluster.submit({"name": "sleeps", "command": ["sleep", "600"],
                              "resources": {"nodes": 2, "ranks_per_node": 1}})
        cluster.wait_for_state(job, "running")
        shutil.rmtree(cluster.dir / "nodes" / "node-2")
        cluster.muster("down")
        done = cluster.muster("up", check=False, timeout=60)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("node-2 may still run processes of a worker with another directory", done.stderr)

    def test_a_second_coordinator_in_one_directory(self):
        cluster = Cluster(self)
        done = run("muster-coordinator", "--dir", cluster.dir, check=False, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(str(cluster.coordinator_pid()), done.stderr)

    def test_two_ups_at_once_make_one_cluster(self):
        cluster = Cluster(self)
        cluster.muster("down")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            both = list(pool.map(lambda _: cluster.muster("up", "--nodes", 2, check=False), range(2)))
        self.assertTrue(all(done.returncode in (0, 6) for done in both), both)
        self.assertTrue(any(done.returncode == 0 for done in both), both)
        self.assertEqual([n["state"] for n in cluster.json("nodes")], ["ready", "ready"])

    def test_a_job_that_does_not_exist(self):
        cluster = Cluster(self)
        for command in ("get", "describe", "cancel", "wait", "logs", "attach"):
            done = cluster.muster(command, "nosuchjob", check=False)
            self.assertEqual(done.returncode, 3, f"{command}: {done.stderr}")
            self.assertIn("nosuchjob", done.stderr)


if __name__ == "__main__":
    unittest.main()
