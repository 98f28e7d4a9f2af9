"""The wheel as a user has it: in an environment without torch, beside LibTorch, and beside one that does not fit."""

import json
import os
import pathlib
import re
import signal
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import cluster  # noqa: E402
from cluster import ROOT, Cluster, run  # noqa: E402

BUILD = cluster.BIN.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
TOOLS = CACHE / "muster" / "release" / "bin"
PIP_LINE = "python3 -m pip install 'torch==2.11.*'"
BAD_INPUT = 78
# Before all other names of a LibTorch that fits.
OLDER_TORCH = """#include <map>
#include <string>
namespace caffe2 {
const std::map<std::string, std::string>& GetBuildOptions() {
  static const std::map<std::string, std::string> options{{"TORCH_VERSION", "2.10.0"}};
  return options;
}
}
"""


def output_of(*command):
    return subprocess.run(list(map(str, command)), check=True, text=True, capture_output=True, timeout=300).stdout


def files_below(folder):
    """Without folders, of which pip leaves empty ones."""
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}


def libtorch():
    """The folder of the LibTorch that the build is linked with: include/, lib/."""
    linked = output_of("ldd", BUILD / "bin" / "libmuster_trainer.so")
    return pathlib.Path(re.search(r"libtorch_cpu.so => (\S+)/lib/", linked).group(1))


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not TOOLS.exists():
            raise AssertionError("run deploy/install-deps --tests")
        temp = tempfile.TemporaryDirectory(prefix="muster-test-")
        cls.addClassCleanup(temp.cleanup)
        cls.temp = pathlib.Path(temp.name)
        output_of(TOOLS / "python", ROOT / "deploy" / "wheel.py", BUILD, cls.temp)
        (cls.wheel,) = cls.temp.glob("*.whl")

    def setUp(self):
        self.venv = pathlib.Path(tempfile.mkdtemp(prefix="venv-", dir=self.temp))
        output_of("/usr/bin/python3", "-m", "venv", "--without-pip", self.venv)
        self.before = files_below(self.venv)
        self.pip("install", "--no-index", self.wheel)
        (self.packages,) = self.venv.glob("lib/python3*/site-packages")
        self.programs = self.venv / "bin"

    def pip(self, *arguments):
        output_of(TOOLS / "python", "-m", "pip", "--disable-pip-version-check", "--python", self.venv / "bin" / "python",
                  *arguments)

    def put_libtorch(self, change):
        """A torch in the environment whose libtorch_cpu `change` has written another way."""
        folder = self.packages / "torch" / "lib"
        folder.mkdir(parents=True)
        for library in (libtorch() / "lib").iterdir():
            if library.name != "libtorch_cpu.so":
                (folder / library.name).symlink_to(library)
        change(libtorch() / "lib" / "libtorch_cpu.so", folder / "libtorch_cpu.so")
        if (libtorch().parent / "nvidia").exists():
            (self.packages / "nvidia").symlink_to(libtorch().parent / "nvidia")

    def expect_refusal(self, *reasons):
        refused = run("muster-trainer", "--version", programs=self.programs, check=False)
        self.assertEqual(refused.returncode, BAD_INPUT, refused)
        for text in (*reasons, PIP_LINE):
            self.assertIn(text, refused.stderr)
        doctor = json.loads(run("muster", "doctor", "-o", "json", programs=self.programs, check=False).stdout)
        found = next(finding for finding in doctor if finding["check"] == "trainer")
        self.assertEqual(found["verdict"], "warn", found)
        self.assertIn("torch==2.11", found["command"])

    def test_it_runs_on_other_machines(self):
        self.assertRegex(self.wheel.name, r"^muster_training-[^-]+-py3-none-manylinux_2_3[56]_x86_64\.whl$")
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
            for name in names:
                for path in (ROOT, libtorch()):
                    self.assertEqual(wheel.read(name).find(str(path).encode()), -1, f"{path} in {name}")
            sums = wheel.read(next(name for name in names if name.endswith("/sboms/muster.cdx.json")))
        self.assertFalse([name for name in names if re.search(r"/lib(torch|c10|gomp|cudart|cuda\W)", name)])
        self.assertLessEqual({"libgrpc29", "nlohmann-json3-dev", "libssl3", "torch"},
                             {part["name"] for part in json.loads(sums)["components"]})
        for program in (self.packages / "muster_training").glob("*/*muster*"):
            for folders in re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", output_of("readelf", "-d", program)):
                self.assertTrue(all(folder.startswith("$ORIGIN/") for folder in folders.split(":")), (program, folders))

    def test_without_torch_all_but_the_trainer_works(self):
        said = output_of(BUILD / "bin" / "muster", "--version")
        self.assertEqual(output_of(self.venv / "bin" / "muster", "--version"), said)
        self.assertEqual(output_of(self.venv / "bin" / "python", "-m", "muster_training", "--version"), said)
        self.expect_refusal("libtorch_cpu.so: cannot open shared object file")
        local = Cluster(self, programs=self.programs)
        resources = {"nodes": 2, "ranks_per_node": 1, "device": "cpu"}
        job = local.submit({"name": "command", "resources": resources, "command": ["sh", "-c", "env; echo done"], "rendezvous": "rank0",
                            "workdir": str(local.root)})
        self.assertEqual(local.wait(job), 0, local.describe(job))
        log = (local.output(job) / "logs" / "1" / "rank-1.log").read_text()
        self.assertEqual(log.splitlines()[-1], "done")
        self.assertEqual("LD_LIBRARY_PATH=" in log, "LD_LIBRARY_PATH" in os.environ)
        job = local.submit(local.train_job())
        self.assertEqual(local.wait(job), 10)
        self.assertEqual(len(local.get(job)["attempts"]), 1)
        self.assertIn(PIP_LINE, local.describe(job))

    def test_beside_torch_the_trainer_uses_its_libraries(self):
        self.put_libtorch(lambda real, mine: mine.symlink_to(real))
        local = Cluster(self, programs=self.programs)
        job = local.submit(local.train_job(steps=30))
        for pid in local.ranks(job).values():
            maps = pathlib.Path(f"/proc/{pid}/maps")
            cluster.wait_until(lambda: "libtorch_cpu" in maps.read_text(), "LibTorch is loaded")
            for name in ("libgomp", "libtorch_cpu"):
                loaded = set(re.findall(rf"/\S*{name}\S*", maps.read_text()))
                self.assertEqual({pathlib.Path(path).parent for path in loaded}, {libtorch() / "lib"}, loaded)
                self.assertEqual(len(loaded), 1, loaded)
        self.assertEqual(local.wait(job), 0, local.describe(job))
        if (BUILD / "bin" / "libmuster_cuda.so").exists():
            built = json.loads(output_of(BUILD / "bin" / "muster-trainer", "version", "--json"))
            self.assertEqual(json.loads(run("muster-trainer", "version", "--json", programs=self.programs).stdout)["cuda"], built["cuda"])

    def test_an_installation_under_a_running_cluster_disturbs_no_rank(self):
        self.put_libtorch(lambda real, mine: mine.symlink_to(real))
        local = Cluster(self, programs=self.programs)
        job = local.submit(local.train_job(steps=10**5, every=50))
        local.wait_for_step(job, 10)
        ranks = local.ranks(job)
        self.pip("install", "--no-index", "--force-reinstall", self.wheel)
        for pid in (local.coordinator_pid(), *(node["pid"] for node in local.json("nodes"))):
            os.kill(pid, signal.SIGKILL)
        local.up()
        local.wait_until_ready()
        local.wait_for_step(job, max(cluster.read_metrics(local.output(job))) + 10)
        self.assertEqual(local.ranks(job), ranks)
        self.assertEqual(len(local.get(job)["attempts"]), 1, local.describe(job))
        local.muster("cancel", job)
        local.wait(job)

    def test_a_torch_of_another_version_is_refused(self):
        def older(real, mine):
            (self.venv / "older.cc").write_text(OLDER_TORCH)
            output_of("c++", "-shared", "-fPIC", "-o", mine, self.venv / "older.cc")
            (mine.parent / "libreal.so").symlink_to(real)
            output_of(TOOLS / "patchelf", "--add-needed", "libreal.so", "--add-rpath", "$ORIGIN", mine)
        self.put_libtorch(older)
        self.expect_refusal("needs LibTorch 2.11, but 2.10.0 is installed")

    def test_a_damaged_torch_is_refused(self):
        def cut(real, mine):
            with open(real, "rb") as whole:
                mine.write_bytes(whole.read(100_000))
        self.put_libtorch(cut)
        self.expect_refusal("is damaged")

    def test_a_damaged_wheel_is_not_taken_for_a_damaged_torch(self):
        self.put_libtorch(lambda real, mine: mine.symlink_to(real))
        library = self.packages / "muster_training" / "lib" / "libmuster_trainer.so"
        os.truncate(library, library.stat().st_size // 2)
        refused = run("muster-trainer", "--version", programs=self.programs, check=False)
        self.assertEqual(refused.returncode, BAD_INPUT, refused)
        self.assertEqual(refused.stderr.splitlines()[0], f"muster-trainer: {library} is damaged.")
        self.assertIn("Install Muster again", refused.stderr)
        self.assertIn("install Muster again", run("muster", "doctor", programs=self.programs, check=False).stdout)

    def test_a_damaged_library_of_the_wheel_is_named(self):
        library = next((self.packages / "muster_training.libs").glob("libgrpc++*"))
        os.truncate(library, library.stat().st_size // 2)
        for program in ("muster", "muster-worker"):
            refused = run(program, "--version", programs=self.programs, check=False)
            self.assertEqual(refused.returncode, BAD_INPUT, refused)
            self.assertEqual(refused.stderr.splitlines()[0], f"{program}: {library} is damaged.")
            self.assertIn("Install Muster again", refused.stderr)

    def test_a_foreign_torch_is_refused(self):
        self.put_libtorch(lambda real, mine: mine.symlink_to(real.parent / "libc10.so"))
        self.expect_refusal("undefined symbol")

    def test_an_installation_without_python_finds_libtorch_beside_it(self):
        output_of("cmake", "--install", BUILD, "--strip", "--prefix", self.venv / "opt" / "version")
        (self.venv / "opt" / "torch").symlink_to(libtorch())
        programs = self.venv / "opt" / "version" / "bin"
        self.assertEqual(run("muster-trainer", "--version", programs=programs).stdout.split()[:2],
                         ["muster-trainer", run("muster", "--version", programs=programs).stdout.split()[1]])

    def test_no_file_stays_behind(self):
        for place in ("bash-completion/completions/muster", "zsh/site-functions/_muster", "fish/vendor_completions.d/muster.fish",
                      "man/man1/muster-submit.1"):
            self.assertIn("muster", (self.venv / "share" / place).read_text())
        self.pip("uninstall", "--yes", "muster-training")
        self.assertEqual(files_below(self.venv), self.before)


if __name__ == "__main__":
    unittest.main()
