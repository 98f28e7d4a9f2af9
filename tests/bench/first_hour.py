#!/usr/bin/env python3
"""The first hour: the lines of docs/install.md, typed into machines that have nothing but what the page installs.

  first_hour.py [--artefacts DIR] [--work DIR] [--wheels DIR] [--image ARCHIVE] [--only NAME,...] [--runs N]

  deb_debian12      the Debian packages in a minimal Debian 12; dependencies are in apt's cache, LibTorch is unpacked
  image             the archive of --image
  wheel_debian12    the wheel in an environment with torch, of an ordinary user
  wheel_debian13    the same in a minimal Debian 13, which has Python 3.13
  torchrun          a script of torchrun's, by `muster run` and by torchrun, in the environment of wheel_debian12
  slurm             a job of two nodes and a spare in a Slurm lab (tests/slurm), one of its nodes killed

Of each way: seconds and characters typed of every line; seconds from its first line to the first trained token (the
first line of the job's metrics.jsonl) and to the first step after the kill. The machines are namespaces without a network over
folders that debootstrap's kin makes; that, downloads, and the environment with torch are prepared before and not measured.
What deploy/release makes is taken from --artefacts (made by it where missing); the wheels of torch and of what it depends on,
for both Pythons, from --wheels. Needs root. Prints one JSON object; `not_timed` names what was left out and
why, and `violations` counts the ways that did not get to their end or missed a bar, by which it ends.
"""

import argparse
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("support", "slurm")]
import cluster  # noqa: E402
import containers  # noqa: E402
import machine  # noqa: E402
import peer  # noqa: E402
from lab import Lab, why_not  # noqa: E402
from recovery_runs import Metrics  # noqa: E402
from system_copy import Shell, SystemCopy  # noqa: E402

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "muster"
USER, HOME = 1000, "/home/user"
BARS_S = {"first_token_s": 60, "recovered_s": 75}
TORCH = "torch==2.11.*"
PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}
PLATFORMS = ("_2_28", "_2_27", "_2_25", "_2_18", "_2_17", "2014", "_2_12", "2010")  # that its dependencies have wheels for
SCRIPT = ROOT / "tests" / "bench" / "peers" / "first_collective.py"


class LeftOut(Exception):
    """Something that a way needs is not there; the message names it and what to do."""


def lines_of(title):
    """What the page has its reader type below a title."""
    text = (ROOT / "docs" / "install.md").read_text("utf-8")
    section = text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    return re.search(r"```sh\n(.*?)\n```", section, re.S).group(1).splitlines()


def command(*words, **options):
    subprocess.run(list(map(str, words)), check=True, stdout=sys.stderr, **options)


class Bench:
    def __init__(self, options):
        self.options = options
        self.work = options.work.resolve()
        self.systems = self.work / "systems"
        self.systems.mkdir(parents=True, exist_ok=True)
        self.artefacts = options.artefacts.resolve()
        if not list(self.artefacts.glob("*.whl")):
            command(ROOT / "deploy" / "release", self.artefacts)

    # What is not measured.

    def once(self, name, make):
        """A folder of that name, made by make(folder) if no run before has."""
        folder = self.systems / name
        if not folder.exists():
            part = self.systems / f"{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            print(f"preparing {name}", file=sys.stderr, flush=True)
            make(part)
            part.rename(folder)
        return folder

    def debian(self, suite):
        def make(folder):
            if not shutil.which("mmdebstrap"):
                raise LeftOut("mmdebstrap is not there: deploy/install-deps --tests")
            command("mmdebstrap", "--variant=minbase", "--mode=root", "--format=directory", suite, folder)
            with self.prepared(folder) as system:
                system.type("apt-get update")
        return self.once(suite, make)

    def prepared(self, folder, binds=None):
        shutil.copy("/etc/resolv.conf", folder / "etc" / "resolv.conf")
        return SystemCopy(folder, binds, network=True, in_place=True, changes=self.work)

    def with_packages(self):
        """Debian 12 with all that the packages depend on in apt's cache, none of it installed."""
        folder = self.debian("bookworm")
        with self.prepared(folder, {self.artefacts: "/packages"}) as system:
            system.type("apt-get install -y --download-only /packages/*.deb")
        return folder

    def wheels(self, python):
        """A folder with the wheels of torch and of what it depends on."""
        folder = self.options.wheels or self.work / "wheels"
        if not list(folder.glob(f"torch-2.11.*-cp{python.replace('.', '')}-*.whl")):
            platforms = [f"--platform=manylinux{name}_x86_64" for name in PLATFORMS]
            abis = [f"--abi={abi}" for abi in (f"cp{python.replace('.', '')}", "abi3", "none")]
            command("/usr/bin/python3", "-m", "pip", "download", "--quiet", "--dest", folder, "--find-links", folder,
                    f"--python-version={python}", "--implementation=cp", *abis, *platforms, "--only-binary=:all:", TORCH)
        return folder.resolve()

    def with_torch(self, suite):
        """Debian with an ordinary user who has an environment with torch."""
        def make(folder):
            wheels = self.wheels(PYTHONS[suite])
            command("cp", "-a", self.debian(suite), folder)
            with self.prepared(folder, {wheels: "/wheels"}) as system:
                system.type("apt-get install -y --no-install-recommends python3-venv")
                system.type(f"useradd --create-home --shell /bin/bash --uid {USER} user")
                system.type(f"setpriv --reuid={USER} --regid={USER} --clear-groups sh -ec 'cd {HOME}; export HOME={HOME}; "
                            f"python3 -m venv env; env/bin/pip install --no-cache-dir --no-index --find-links /wheels {TORCH}'",
                            limit_s=1800)
        return self.once(f"{suite}-torch", make)

    # What is.

    def follow(self, shell, lines, metrics):
        """Types the lines; the last one trains, with its metrics in the file metrics(), and says where it kills a rank."""
        began, load = time.monotonic(), os.getloadavg()[0]
        seen, followed = {}, []

        def watch(text):
            if not followed:
                followed.extend(Metrics(file) for file in metrics())
            for job in followed[:1]:
                job.update()
                for name, reached in (("first_token_s", job.step > 0), ("killed_s", "kill -9 " in text),
                                      ("recovered_s", job.generation > 1)):
                    if reached:
                        seen.setdefault(name, time.monotonic() - began)

        typed = []
        for line in lines:
            seconds, text, _ = shell.type(line, watch=watch)
            typed.append({"typed": line, "characters": len(line) + 1, "seconds": round(seconds, 2)})
        if "recovered_s" not in seen or "killed by SIGKILL" not in text:
            raise AssertionError(f"nothing was killed and recovered:\n{text}")
        return {"lines": typed, "characters": sum(each["characters"] for each in typed),
                **{name: round(value, 2) for name, value in seen.items()},
                "recovery_s": round(seen["recovered_s"] - seen["killed_s"], 2),
                "within_bars": all(seen[name] <= bar for name, bar in BARS_S.items()),
                "load_1min": [round(load, 2), round(os.getloadavg()[0], 2)]}

    @staticmethod
    def demo_in(folder):
        return lambda: folder.glob("muster-demo-*/out/metrics.jsonl")

    def deb_debian12(self):
        peer.require()
        with SystemCopy(self.with_packages(), {self.artefacts: "/packages", peer.BIN.parent: "/opt/torch"},
                        changes=self.work) as system:
            system.type("cd /packages")
            return self.follow(system, lines_of("Debian packages"), self.demo_in(system.changed("/tmp")))

    def in_environment(self, suite):
        system = SystemCopy(self.with_torch(suite), {self.artefacts: "/packages"}, user=USER, home=HOME, changes=self.work)
        system.type("cd /packages && . ~/env/bin/activate")
        return system

    def wheel(self, suite):
        with self.in_environment(suite) as system:
            return self.follow(system, lines_of("A Python environment"), self.demo_in(system.changed("/tmp")))

    def torchrun(self):
        (line,) = lines_of("A script that torchrun starts today")
        with self.in_environment("bookworm") as system:
            system.type(lines_of("A Python environment")[0])
            system.type(f"cd ~ && cat >train.py <<'END'\n{SCRIPT.read_text('utf-8')}\nEND")

            def first_collective(words):
                """From Enter to the first collective that is done."""
                began = time.time()
                system.type(f"{words} done")
                return float(system.changed(f"{HOME}/done").read_text()) - began

            rounds = machine.Rounds()
            for _ in range(self.options.runs):
                rounds.take({name: functools.partial(first_collective, words) for name, words in
                             (("muster_run", line), ("torchrun", line.replace("muster run", "torchrun")))})
            return {"lines": [{"typed": line, "characters": len(line) + 1}],
                    "enter_to_first_collective": rounds.summaries(), "busy": rounds.busy()}

    def image(self):
        archive = self.options.image
        if archive is None:
            raise LeftOut("--image names no archive of an image")
        load, line = lines_of("An image")
        with tempfile.TemporaryDirectory(dir=self.work) as temp:
            folder = pathlib.Path(temp)
            settings = [f"{key}={value}" for key, value in containers.environment(folder / "podman").items() if key.startswith("CONTAINERS_")]
            (folder / "tmp").mkdir()
            # Without a network, and with the demo's files where this sees them.
            run = line.replace("podman run --rm", f"podman run --rm --network=none -v {folder}/tmp:/tmp")
            with Shell(*containers.NAMESPACE, "env", *settings) as shell:
                shell.type(f"cd {archive.resolve().parent}")
                result = self.follow(shell, [load, run], self.demo_in(folder / "tmp"))
                shell.type(f"umount {folder}/podman/graph/overlay", check=False)
        for measured, typed in zip(result["lines"], (load, line)):
            measured |= {"typed": typed, "characters": len(typed) + 1}
        return {**result, "characters": len(load) + len(line) + 2}

    def slurm(self):
        """The programs are those of the wheel, in an environment that all nodes see."""
        if why_not():
            raise LeftOut(f"there can be no Slurm lab: {why_not()}")
        peer.require()
        with tempfile.TemporaryDirectory(prefix="muster-first-hour-") as temp:
            env = pathlib.Path(temp) / "env"
            command("/usr/bin/python3", "-m", "venv", env)
            command(env / "bin" / "pip", "install", "--quiet", "--no-index", *self.artefacts.glob("*.whl"))
            (packages,) = env.glob("lib/python3*/site-packages")
            for folder in peer.BIN.parent.glob("lib/python3*/site-packages"):
                for name in ("torch", "nvidia"):
                    (packages / name).symlink_to(folder / name)
            with Lab(3, visible=[env]) as lab:
                return self.job_in(lab, env / "bin")

    def job_in(self, lab, programs):
        (line,) = lines_of("A job under Slurm")
        command(programs / "muster-trainer", "init-model", "--preset", "tiny", "--out", lab.shared / "model")
        spec = cluster.train_job(lab.shared / "model", cluster.write_rows(lab.shared / "rows.jsonl"), lab.shared / "out", steps=100000, fsdp={})
        (lab.shared / "job.yaml").write_text(json.dumps(spec), encoding="utf-8")
        path = {"PATH": f"{programs}:{lab.environment()['PATH']}"}
        job, load, began = Metrics(lab.shared / "out" / "metrics.jsonl"), os.getloadavg()[0], time.monotonic()
        lab.run(*line.split(), env=path)
        submitted = time.monotonic()

        def wait(condition, what):
            def reached():
                job.update()
                return condition()
            cluster.wait_until(reached, what)
            return time.monotonic()

        first = wait(lambda: job.step > 0, "the first step")
        wait(lambda: job.step >= 60, "step 60")
        ranks = json.loads(lab.run("muster", "get", spec["name"], "--slurm-job", spec["name"], "-o", "json", env=path).stdout)["ranks"]
        lab.kill_node(next(rank["node"] for rank in ranks if rank["node"] != "n1"))  # which coordinates
        lost, before = time.monotonic(), job.generation
        recovered = wait(lambda: job.generation > before, "a step after the loss of a node")
        return {"lines": [{"typed": line, "characters": len(line) + 1, "seconds": round(submitted - began, 2)}],
                "characters": len(line) + 1, "first_token_s": round(first - began, 2), "recovery_s": round(recovered - lost, 2),
                "load_1min": [round(load, 2), round(os.getloadavg()[0], 2)]}


def artefacts(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in sorted(folder.iterdir()) if path.is_file()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--artefacts", type=pathlib.Path, default=ROOT / "build" / "packages")
    parser.add_argument("--work", type=pathlib.Path, default=CACHE / "first-hour", help="the prepared systems [%(default)s]")
    parser.add_argument("--wheels", type=pathlib.Path, help="a folder with them [WORK/wheels, downloaded]")
    parser.add_argument("--image", type=pathlib.Path)
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--runs", type=int, default=5, help="of torchrun and of `muster run` [5]")
    options = parser.parse_args()
    bench = Bench(options)
    ways = {"deb_debian12": bench.deb_debian12, "image": bench.image,
            "wheel_debian12": functools.partial(bench.wheel, "bookworm"),
            "wheel_debian13": functools.partial(bench.wheel, "trixie"), "torchrun": bench.torchrun, "slurm": bench.slurm}
    result = {"benchmark": "first_hour", "seed": 0, "revision": machine.revision(ROOT), "machine": machine.describe(),
              "bars_s": BARS_S, "artefacts": artefacts(bench.artefacts), "ways": {}, "not_timed": {}, "failed": {}}
    for name in options.only or ways:
        print(name, file=sys.stderr, flush=True)
        try:
            result["ways"][name] = ways[name]()
        except LeftOut as reason:
            result["not_timed"][name] = str(reason)
        except (AssertionError, subprocess.CalledProcessError) as error:
            result["failed"][name] = str(error)
    missed = [name for name, way in result["ways"].items() if way.get("within_bars") is False]
    result["violations"] = len(result["failed"]) + len(missed)
    print(json.dumps(result, indent=1))
    return 1 if result["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
