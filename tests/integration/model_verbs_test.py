"""The verbs of muster-trainer around a model's files, as programs: options, output, exit codes."""

import json
import os
import pathlib
import pty
import select
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, init_model  # noqa: E402

LIMIT_S = 60
BAD_INPUT, USAGE = 78, 2


class ModelVerbs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory(prefix="muster-verbs-")
        cls.addClassCleanup(temp.cleanup)
        cls.root = pathlib.Path(temp.name)
        cls.model = init_model(cls.root / "model")

    def verb(self, *arguments, code=0, stdin=""):
        done = subprocess.run([BIN / "muster-trainer", *map(str, arguments)], input=stdin,
                              timeout=LIMIT_S, capture_output=True, text=True, check=False,
                              errors="replace", env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def generated(self, *arguments, stdin=""):
        return json.loads(self.verb("generate", "--model", self.model, "--json", *arguments,
                                    stdin=stdin))

    def test_generate_takes_its_prompt_from_either_place(self):
        given = self.generated("--prompt", "The sea", "--max-new-tokens", 12)
        self.assertEqual((given["prompt_tokens"], given["new_tokens"], given["finish_reason"]),
                         (7, 12, "length"))
        piped = self.generated("--max-new-tokens", 12, stdin="The sea")
        self.assertEqual(piped["ids"], given["ids"])

    def test_generate_draws_the_same_for_a_seed(self):
        def draw(seed, *more):
            return self.generated("--prompt", "The sea", "--max-new-tokens", 24, "--temperature", 1,
                                  "--top-p", 0.95, "--top-k", 50, "--seed", seed, *more)
        first = draw(7)
        self.assertEqual(draw(7)["ids"], first["ids"])
        self.assertNotEqual(draw(8)["ids"], first["ids"])
        stop = first["text"][10:13]
        ended = draw(7, "--stop", stop, "--stop", "never there")
        self.assertEqual((ended["text"], ended["finish_reason"]),
                         (first["text"][:first["text"].index(stop)], "stop"))

    def test_generate_continues_many_prompts_in_their_order(self):
        prompts = ["The sea", "A", "Where is it", "12 + 3"]
        rows = "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
        file = self.root / "prompts.jsonl"
        file.write_text(rows, encoding="utf-8")
        for chat in ((), ("--chat", "--system", "Be brief.")):
            alone = [self.generated("--prompt", prompt, "--max-new-tokens", 12, *chat)["ids"]
                     for prompt in prompts]
            for batch in (1, 3, 16):
                many = self.verb("generate", "--model", self.model, "--prompts", file, "--batch", batch,
                                 "--max-new-tokens", 12, *chat)
                self.assertEqual([json.loads(line)["ids"] for line in many.splitlines()], alone)
        piped = self.verb("generate", "--model", self.model, "--prompts", "-", "--max-new-tokens", 12, stdin=rows)
        self.assertEqual(len(piped.splitlines()), len(prompts))
        file.write_text(rows + "{}\n", encoding="utf-8")
        self.assertIn("prompts.jsonl:5: expected an object with \"prompt\"",
                      self.verb("generate", "--model", self.model, "--prompts", file, code=BAD_INPUT))
        self.verb("generate", "--model", self.model, "--prompt", "x", "--batch", 2, code=USAGE)

    def test_generate_refuses_what_it_cannot_do(self):
        said = self.verb("generate", "--model", self.model, code=BAD_INPUT, stdin="x" * 3000)
        self.assertIn("3000 tokens, and the model's context (max_position_embeddings) is 2048", said)
        self.assertIn("the prompt is empty",
                      self.verb("generate", "--model", self.model, code=BAD_INPUT))
        self.verb("generate", "--model", self.model, "--prompt", "x", "--top-p", 0, code=USAGE)
        self.verb("generate", "--model", self.model, "--prompt", "x", "--system", "s", code=USAGE)
        self.assertIn("no directory nowhere", self.verb("generate", "--model", "nowhere", "--prompt",
                                                        "x", code=BAD_INPUT))

    def test_chat_renders_turns(self):
        once = self.generated("--chat", "--system", "Be brief.", "--prompt", "Hello",
                              "--max-new-tokens", 4)
        self.assertGreater(once["prompt_tokens"], len("Be brief.Hello"))

    def test_chat_converses_on_a_terminal(self):
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [BIN / "muster-trainer", "generate", "--model", self.model, "--chat",
             "--max-new-tokens", "3"], stdin=slave, stdout=slave, stderr=slave, close_fds=True)
        os.close(slave)
        try:
            self.read_until(master, b"> ")
            os.write(master, b"Hello\n")
            self.read_until(master, b"\n> ")
            os.write(master, b"/clear\n")
            self.read_until(master, b"new conversation")
            os.write(master, b"/exit\n")
            self.assertEqual(process.wait(LIMIT_S), 0)
        finally:
            process.kill()
            process.wait(LIMIT_S)
            os.close(master)

    def read_until(self, terminal, text):
        seen, deadline = b"", time.monotonic() + LIMIT_S
        while text not in seen:
            self.assertTrue(select.select([terminal], [], [], deadline - time.monotonic())[0], seen)
            seen += os.read(terminal, 4096)

    def test_score_agrees_over_kinds_of_rows(self):
        text = "Some words to be scored."
        (self.root / "words.txt").write_text(text)
        (self.root / "words.jsonl").write_text(json.dumps(list(text.encode())) + "\n")
        from_text, from_ids = (
            json.loads(self.verb("score", "--model", self.model, kind, self.root / name, "-o", "json"))
            for kind, name in (("--text", "words.txt"), ("--ids", "words.jsonl")))
        self.assertEqual(from_text, from_ids)
        self.assertEqual(from_text["tokens"], len(text) - 1)
        (self.root / "rows.jsonl").write_text(
            '{"prompt": "a", "completion": "bc"}\n{"text": "hello"}\n')
        rows = json.loads(self.verb("score", "--model", self.model, "--data",
                                    self.root / "rows.jsonl", "-o", "json"))
        self.assertEqual((rows["count"], len(rows["rows"])), (2, 2))
        self.assertEqual(rows["tokens"], sum(row["tokens"] for row in rows["rows"]))

    def test_score_names_the_row_that_is_no_good(self):
        (self.root / "bad.jsonl").write_text('[1, 2]\n[1, 99999]\n')
        self.assertIn("row 2: token id 99999", self.verb(
            "score", "--model", self.model, "--ids", self.root / "bad.jsonl", code=BAD_INPUT))
        (self.root / "worse.jsonl").write_text('[1, 2]\n{}\n')
        self.assertIn("worse.jsonl:2", self.verb(
            "score", "--model", self.model, "--ids", self.root / "worse.jsonl", code=BAD_INPUT))
        self.verb("score", "--model", self.model, code=USAGE)

    def test_tokenize_counts_and_spells(self):
        told = json.loads(self.verb("tokenize", "--model", self.model, "--text", "a b", "--pieces"))
        self.assertEqual((told["ids"], told["pieces"]), ([97, 32, 98], ["a", "\u0120", "b"]))
        counted = json.loads(self.verb("tokenize", "--model", self.model, "--plain", "--count",
                                       stdin="one\ntwo\n"))
        self.assertEqual(counted, {"rows": 2, "tokens": 6})
        self.assertIn("standard input:1", self.verb("tokenize", "--model", self.model,
                                                    code=BAD_INPUT, stdin="no json\n"))

    def test_inspect_and_checkpoints_say_what_is_there(self):
        told = json.loads(self.verb("inspect", self.model, "-o", "json"))
        self.assertEqual((told["kind"], told["weights"]["elements"]), ("model", told["parameters"]))
        self.assertIn("architecture LlamaForCausalLM", self.verb("inspect", self.model))
        (self.root / "empty").mkdir()
        self.assertEqual(json.loads(self.verb("checkpoints", self.root / "empty", "--json")), [])
        self.assertIn("no such directory",
                      self.verb("checkpoints", self.root / "nowhere", code=BAD_INPUT))


if __name__ == "__main__":
    unittest.main()
