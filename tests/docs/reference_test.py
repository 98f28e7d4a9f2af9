"""What of the documentation is made from sources is what they say, and names of tests and keys in it exist."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["MUSTER_BIN_DIR"])
GENERATE = ROOT / "deploy" / "reference" / "generate.py"
sys.path.insert(0, str(GENERATE.parent))

import exit_codes  # noqa: E402
import job_file  # noqa: E402
import metrics  # noqa: E402
import protocol  # noqa: E402
import symptoms  # noqa: E402


def text_of(*patterns):
    return "\n".join(path.read_text(encoding="utf-8") for pattern in patterns for path in sorted(ROOT.glob(pattern)))


class Reference(unittest.TestCase):
    def test_it_is_what_the_sources_say(self):
        done = subprocess.run([sys.executable, "-B", GENERATE, "--check", "--programs", BIN], capture_output=True, text=True,
                              timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_each_call_and_page_has_its_roles_or_callers(self):
        rules, roles = protocol.callers(ROOT), protocol.roles(ROOT)
        calls = [f"/muster.v1.{service}/{call}" for service, name in (("Client", "client"), ("Secrets", "secret"))
                 for call in re.findall(r"^  rpc (\w+)", text_of(f"proto/muster/v1/{name}_api.proto"), re.M)]
        calls.remove("/muster.v1.Secrets/FetchSecrets")  # a node's
        self.assertGreater(len(calls), 20)
        for call in calls:
            self.assertIn(call, roles)
        self.assertEqual(roles["/muster.v1.Client/Cancel"], "operator in the job's queue; submitter for a job of one's own")
        self.assertEqual(len(roles), len(calls))
        self.assertEqual(rules["/muster.v1.Enrol/Join"], ["a client without a certificate"])
        self.assertEqual(len(rules), len(re.findall(r'^    \{"/', text_of("coordinator/service/authorization.cc"), re.M)))

    def test_each_exit_code_of_a_header_has_a_meaning(self):
        for _, header in exit_codes.HEADERS:
            text = text_of(header)
            self.assertEqual(len(exit_codes.codes(text)), len(re.findall(r"inline constexpr int kExit", text)), header)

    def test_each_metric_of_the_sources_has_a_row(self):
        named = set(re.findall(r'"(muster_[a-z_]+)"', text_of("coordinator/*metrics.cc", "worker/service/*metrics.cc")))
        self.assertEqual({name for rows in metrics.families(ROOT).values() for name, *_ in rows}, named)

    def test_each_advice_of_the_cause_cards_is_found(self):
        page, source = symptoms.page(ROOT), text_of(symptoms.SOURCE)
        for number in re.findall(r"XidAdvice\{(\d+)", source):
            self.assertIn(f"| Xid {number} |", page)
        for words in re.findall(r"Says\(words, \{\"([^\"]+)\"", source):
            self.assertIn(f'"{words}"', page)
        self.assertNotRegex(page, r"\| *\|\n", "a symptom without advice")

    def test_a_key_with_a_bar_stays_in_its_cell(self):
        row = job_file.table({"properties": {"k": {"type": "string", "description": "a | b"}}}, "").splitlines()[2]
        self.assertEqual(row, "| `k` | text | none | a \\| b |")


class Version(unittest.TestCase):
    def test_each_place_that_names_files_of_a_release_gets_its_version(self):
        script = (ROOT / "deploy/set-version").read_text("utf-8")
        named = re.search(r"NAMED_IN=\((.*?)\)", script, re.S)[1].split()
        files = [*named, "common/base/version.h", "docs/operations.md", "CHANGELOG.md", "deploy/set-version", "deploy/common.sh"]
        with tempfile.TemporaryDirectory(prefix="muster-test-") as temp:
            for name in files:
                (pathlib.Path(temp) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, pathlib.Path(temp) / name)
            subprocess.run([f"{temp}/deploy/set-version", "9.8.7-beta"], check=True, timeout=60)
            text = {name: (pathlib.Path(temp) / name).read_text("utf-8") for name in files}
        old = re.search(r'kVersion\[\] = "(.*)"', text_of("common/base/version.h"))[1]
        for name in [*named, "common/base/version.h"]:
            self.assertIn("9.8.7-beta", text[name], name)
            self.assertNotIn(old, text[name], name)
        self.assertIn("v=9.8.7b0\n", text["docs/operations.md"])
        head = re.search(r"## \[9\.8\.7-beta\] - 20\d\d-\d\d-\d\d\n", text["CHANGELOG.md"])[0]
        first = "## [Unreleased]\n"
        self.assertEqual(text["CHANGELOG.md"], text_of("CHANGELOG.md").replace(first, f"{first}\n{head}", 1))
        images = re.compile(r"muster-(?:control|trainer)[:-][0-9]")
        for path in [*ROOT.glob("deploy/**/*.yaml"), *ROOT.glob("docs/**/*.md")]:
            if images.search(path.read_text("utf-8")):
                self.assertIn(str(path.relative_to(ROOT)), named, "deploy/set-version does not know the file")


class Names(unittest.TestCase):
    def test_keys_that_commands_print_are_in_their_sources(self):
        sources = text_of("cli/**/*.cc")
        for command, keys in json.loads(text_of("cli/output_keys.json")).items():
            for key in re.findall(r"`([a-z_]+)`", keys):
                self.assertIn(f'"{key}"', sources, f"{key} of {command}")

    def test_each_row_of_silent_errors_names_cases_that_run_with_every_change(self):
        page = text_of("docs/silent-errors.md")
        rows = [re.findall(r"`([^`]+)`", cell) for cell in re.findall(r"^\|.*\| ([^|]*) \|$", page, re.M) if cell not in ("test", "---")]
        self.assertGreater(len(rows), 15)
        folders = ("cli", "common", "coordinator", "tests", "trainer", "worker")
        cases = set(re.findall(r"\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\)", text_of(*(f"{folder}/**/*_test.cc" for folder in folders))))
        with_every_change = []
        for row in rows:
            for name in row:
                with self.subTest(test=name):
                    file, _, case = name.partition("::")
                    if case:
                        (script,) = (ROOT / "tests").glob(f"*/{file}")
                        self.assertIn(file, (script.parent / "CMakeLists.txt").read_text(encoding="utf-8"), "no test of ctest")
                        self.assertIn(f"    def {case}(self):", script.read_text(encoding="utf-8").splitlines())
                    else:
                        self.assertIn(tuple(name.split(".")), cases)
            with_every_change.append([name for name in row if not re.search("(parity|parity_hf)_test.py", name)])
        self.assertTrue(all(with_every_change), "a row names only tests that are labelled peer")

    def test_the_citation_has_the_version_of_the_programs(self):
        version = re.search(r'kVersion\[\] = "(.*)"', text_of("common/base/version.h")).group(1)
        cited = text_of("CITATION.cff")
        self.assertIn(f"version: {version}\n", cited)
        released = re.search(rf"(?m)^## \[{re.escape(version)}\] - (\S+)$", text_of("CHANGELOG.md"))
        if released:
            self.assertIn(f'date-released: "{released[1]}"\n', cited)


if __name__ == "__main__":
    unittest.main()
