"""The units of deploy/systemd and docs/operations.md: what they name exists in the programs that they start."""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, ROOT, run  # noqa: E402

UNITS = ROOT / "deploy" / "systemd"
PROGRAMS = {"coordinator": "muster-coordinator", "worker": "muster-worker"}


def settings(part):
    """[(key, value)] of a unit, in its order."""
    lines = (UNITS / f"muster-{part}.service").read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("=", 1)) for line in lines if re.match(r"[A-Za-z]+=", line)]


def variables(part):
    """Of its environment file, those that are commented out too."""
    text = (UNITS / f"{part}.env").read_text(encoding="utf-8")
    return re.findall(r"^#?([A-Z][A-Z_]*)=(.*)$", text, re.M)


class Units(unittest.TestCase):
    def test_flags_and_variables_are_those_of_the_program(self):
        for part, program in PROGRAMS.items():
            help_text = run(program, "--help").stdout
            unit = dict(settings(part))
            words = shlex.split(unit["ExecStart"])
            self.assertEqual(words[0], f"/usr/local/bin/{program}")
            own = set(re.findall(r"\$\{?([A-Z_]+)", unit["ExecStart"]))
            given = dict(variables(part))
            self.assertLessEqual(own, given.keys(), "what the unit's command line takes from the file")
            flags = [word for word in words if word.startswith("--")]
            for value in (value for name, value in variables(part) if name in own):
                flags += [word for word in shlex.split(value) if word.startswith("--")]
            self.assertIn("--dir", flags)
            for flag in flags:
                self.assertRegex(help_text, rf"{re.escape(flag.split('=')[0])}[ ,\\[]", f"{program} has no such flag")
            for name in given.keys() - own:
                self.assertIn(f"${name}", help_text, f"{program} has no such variable")

    def test_systemd_takes_the_units(self):
        analyze = shutil.which("systemd-analyze")
        if not analyze:
            self.skipTest("there is no systemd-analyze")
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for part in (*PROGRAMS, "launcher"):
                text = (UNITS / f"muster-{part}.service").read_text(encoding="utf-8")
                paths.append(pathlib.Path(folder) / f"muster-{part}.service")
                # It requires the program to be there.
                paths[-1].write_text(text.replace("/usr/local/bin/", f"{BIN}/"), encoding="utf-8")
            done = subprocess.run([analyze, "verify", *paths], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            mine = [line for line in done.stderr.splitlines() if "muster-" in line]
            self.assertEqual(mine, [], "keys or values that systemd does not know")

    def test_the_launcher_keeps_jobs_and_few_rights(self):
        unit = dict(settings("launcher"))
        words = shlex.split(unit["ExecStart"])
        self.assertEqual(words[0], "/usr/local/bin/muster-launcher")
        help_text = run("muster-launcher", "--help").stdout
        for flag in (word for word in words if word.startswith("--")):
            self.assertIn(flag, help_text)
        self.assertEqual((unit["KillMode"], unit["Delegate"], len(unit["CapabilityBoundingSet"].split())), ("process", "yes", 5))

    def analyze(self, name, *flags):
        """What systemd says of the rights that a unit leaves open."""
        program = shutil.which("systemd-analyze")
        if not program:
            self.skipTest("there is no systemd-analyze")
        return subprocess.run([program, "security", "--offline=true", *flags, UNITS / f"muster-{name}.service"],
                              capture_output=True, text=True, timeout=60, check=False)

    def test_units_may_do_as_little_as_their_jobs_allow(self):
        # In tenths of systemd's scale from 0 to 10. Tests of the Debian packages start the units.
        for name, most in (("coordinator", 20), ("worker", 53), ("launcher", 66)):
            done = self.analyze(name, f"--threshold={most}")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_the_workers_unit_leaves_open_has_a_reason(self):
        shown = self.analyze("worker", "--no-pager").stdout
        open_ = re.findall(r"(?m)^✗ (?:SystemCallFilter=~(@\S+)|(\w+)=)", shown)
        self.assertGreater(len(open_), 20, shown)
        reasons = (UNITS / "muster-worker.service").read_text(encoding="utf-8")
        for call, switch in open_:
            self.assertRegex(reasons, rf"#.*{call or switch}\b")

    def test_a_restart_of_the_worker_leaves_its_guardians_alone(self):
        unit = settings("worker")
        self.assertIn(("KillMode", "process"), unit)
        self.assertIn(("Delegate", "yes"), unit)
        self.assertIn(("OOMPolicy", "continue"), unit)
        values = dict(unit)
        stop = int(values["TimeoutStopSec"].removesuffix("s"))
        drains = [int(found) for _, value in variables("worker") for found in re.findall(r"--drain-on-term=(\d+)", value)]
        self.assertTrue(drains)
        self.assertGreater(stop, max(drains), "SIGKILL would come into the drain")

    def test_the_coordinator_is_not_started_again_where_that_would_harm(self):
        values = dict(settings("coordinator"))
        self.assertEqual(values["RestartPreventExitStatus"].split(), ["2", "3"])
        codes = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
        self.assertIn("| 3 | another coordinator has taken over the journal", codes.split("## muster-coordinator")[1])
        self.assertEqual(run("muster-coordinator", "--no-such-flag", check=False).returncode, 2)


class Page(unittest.TestCase):
    def test_every_alert_that_it_names_is_a_rule(self):
        page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
        rules = (ROOT / "deploy" / "prometheus" / "rules" / "alerts.yml").read_text(encoding="utf-8")
        named = set(re.findall(r"`(Muster[A-Z]\w+)`", page))
        self.assertGreater(len(named), 8)
        self.assertLessEqual(named, set(re.findall(r"alert: (\w+)", rules)))

    def test_every_flag_that_it_names_exists(self):
        page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
        found = 0
        for line in re.findall(r"^(?:   )?(?:runuser -u muster -- )?(muster(?:-worker)? .*)$", page, re.M):
            words = shlex.split(line, comments=True)
            help_text, path = run(words[0], "--help").stdout, words[:1]
            for word in words[1:]:
                if not re.search(rf"^  {re.escape(word)}  ", help_text.partition("\nSubcommands:")[2], re.M):
                    break
                path.append(word)
                help_text = run(*path, "--help").stdout
            for flag in (word.split("=")[0] for word in words if word.startswith("--")):
                self.assertRegex(help_text, rf"{flag}\b", f"{line}: {' '.join(path)} has no {flag}")
                found += 1
        self.assertGreater(found, 10)


if __name__ == "__main__":
    unittest.main()
