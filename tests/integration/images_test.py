#!/usr/bin/env python3
"""The container images of deploy/images: their sizes, whether a second build and one by an ordinary user give the same, what they say
that they are made of, their programs, training in the root of the trainer's image, and the Compose file as far as this machine runs
containers. A test of label long; prints one JSON object (docs/measurements/README.md) and needs root."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import accounts  # noqa: E402
import containers  # noqa: E402
from cluster import BIN, ROOT, write_rows  # noqa: E402

LIMITS_MB = {"muster-control": 80, "muster-trainer": 300}
COMPOSE = ROOT / "deploy" / "compose" / "compose.yaml"
# What a pod of Kubernetes or a container has; the root is unpacked on a disk of this machine.
IN_ROOT = """set -e
mount --rbind /proc "$1/proc"; mkdir -p "$1/dev"; mount --rbind /dev "$1/dev"; mount --rbind /sys "$1/sys"
exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root sh -ec "$2" """
INSIDE = "MUSTER_IMAGES_TEST_INSIDE"
MAKER = 20077  # an account that only the test sees
SUBORDINATES = (200000, 65536)
JOB = {
    "name": "tiny", "resources": {"nodes": 2, "ranks_per_node": 1, "device": "cpu"},
    "train": {"model": {"path": "/shared/model"}, "data": {"train": "/shared/rows.jsonl", "max_seq_len": 64},
              "schedule": {"max_steps": 12}, "batch": {"per_rank": 2}, "output": {"dir": "/shared/out"}}}


def note(text):
    print(text, file=sys.stderr, flush=True)


def run(*command, check=True, timeout=1800, **kept):
    done = subprocess.run(list(map(str, command)), check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=timeout, **kept)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))[:200]} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


class Images:
    def __init__(self, folder):
        self.folder = folder
        self.violations = []
        self.sizes = {}
        self.version = run(BIN / "muster", "--version").split()[1]

    def require(self, holds, what):
        if not holds:
            note(f"VIOLATION: {what}")
            self.violations.append(what)

    def path(self, name):
        return self.folder / f"{name}-{self.version}.oci.tar"

    def make(self):
        if not all(self.path(name).exists() for name in LIMITS_MB):
            run(ROOT / "deploy" / "deb", BIN.parent, self.folder)
            note(run(ROOT / "deploy" / "images", BIN.parent, self.folder))
        for path in sorted(self.folder.glob("*.oci.tar")):
            self.sizes[path.name.removesuffix(f"-{self.version}.oci.tar")] = -(-path.stat().st_size // 10**6)
        for name, limit in LIMITS_MB.items():
            self.require(self.sizes.get(name, limit + 1) <= limit, f"{name} has {self.sizes.get(name)} MB, at most {limit}")

    def document(self, name, digest=None):
        with tarfile.open(self.path(name)) as archive:
            member = f"blobs/{digest.replace(':', '/')}" if digest else "index.json"
            return json.load(archive.extractfile(member))

    def manifest_digest(self, name):
        return self.document(name)["manifests"][0]["digest"]

    def bill(self, name):
        """What the image says that it is made of: bytes."""
        return (self.folder / f"{name}-{self.version}.cdx.json").read_bytes()

    def check_again(self):
        """The same packages give the same images, and each is made without the others."""
        for name in LIMITS_MB:
            first = self.manifest_digest(name), self.bill(name)
            run(ROOT / "deploy" / "images", BIN.parent, self.folder, env={**os.environ, "MUSTER_IMAGES": name.removeprefix("muster-")})
            self.require(all(self.path(each).exists() for each in LIMITS_MB), f"making {name} again has removed another")
            self.require(self.manifest_digest(name) == first[0], f"a second build gives another {name}")
            self.require(self.bill(name) == first[1], f"a second build of {name} lists other parts")

    def check_rootless(self, folder):
        """An ordinary user with subordinate ids makes them too, and gets the same images."""
        accounts.make({"maker": MAKER})
        for name in ("subuid", "subgid"):
            (accounts.PLACE / name).write_text("maker:{}:{}\n".format(*SUBORDINATES), encoding="utf-8")
            accounts.mount("--bind", accounts.PLACE / name, f"/etc/{name}")
        accounts.let_in(BIN.parent)
        for line in run("ldd", BIN / "libmuster_trainer.so").splitlines():
            if "libtorch_cpu.so" in line:
                accounts.let_in(pathlib.Path(line.split()[2]).parents[2])
        tree, out, temp = (folder / name for name in ("tree", "out", "tmp"))
        shutil.copytree(ROOT / "deploy", tree / "deploy")
        for made in (tree / "build", out, temp):
            made.mkdir()
        for package in [*self.folder.glob("*.deb"), *self.folder.glob("*_*.cdx.json")]:
            shutil.copy(package, out)
        for made in (tree / "build", out, temp, *out.iterdir()):
            os.chown(made, MAKER, MAKER)
        note(run(tree / "deploy" / "images", BIN.parent, out, user=MAKER, group=MAKER, extra_groups=[], cwd=temp, env={
            "PATH": os.environ["PATH"], "HOME": str(temp), "USER": "maker", "TMPDIR": str(temp), "XDG_RUNTIME_DIR": str(temp),
            "SOURCE_DATE_EPOCH": os.environ["SOURCE_DATE_EPOCH"]}))
        users = Images(out)
        for name in LIMITS_MB:
            self.require(users.manifest_digest(name) == self.manifest_digest(name), f"{name} is another one if a user makes it")
            self.require(users.bill(name) == self.bill(name), f"{name} lists other parts if a user makes it")

    def check_bill(self, name, root, more):
        """It has each package of the root with its version, and what is in no package."""
        parts = {part["name"]: part["version"] for part in json.loads(self.bill(name))["components"]}
        listed = self.in_root(root, "dpkg-query -W -f '${Package} ${Version}\\n'")
        packages = dict(line.split() for line in listed.splitlines())
        self.require(len(packages) > 50 and packages.items() <= parts.items(), f"the parts of {name} lack packages")
        self.require(more <= parts.keys(), f"the parts of {name} lack one of {sorted(more)}")

    def unpack(self, name, root):
        manifest = self.document(name, self.manifest_digest(name))
        for layer in manifest["layers"]:
            blob = f"blobs/{layer['digest'].replace(':', '/')}"
            with tarfile.open(self.path(name)) as archive, archive.extractfile(blob) as packed:
                with tarfile.open(fileobj=packed, mode="r|*") as files:
                    files.extractall(root)
        config = self.document(name, manifest["config"]["digest"])["config"]
        self.require(config["Entrypoint"] == ["/usr/bin/tini", "--"], f"{name} has the entry point {config['Entrypoint']}")

    def in_root(self, root, commands):
        return run("unshare", "--mount", "sh", "-c", IN_ROOT, "sh", root, commands)

    def check_control(self, root):
        self.unpack("muster-control", root)
        self.check_bill("muster-control", root, {"libgrpc29", "nlohmann-json3-dev"})
        said = self.in_root(root, """
            for program in muster muster-coordinator muster-worker; do tini -- $program --version; done
            test ! -e /usr/bin/muster-trainer
            muster init --dir /tmp/cluster && test -s /tmp/cluster/security/ca.pem
            muster up --dir /tmp/local --nodes 2 && muster nodes --dir /tmp/local && muster down --dir /tmp/local""")
        self.require(said.count(self.version) >= 3, f"the programs of muster-control answered {said[-500:]}")
        self.require("node-2" in said, "a local cluster of muster-control has no second node")

    def check_trainer(self, root):
        self.unpack("muster-trainer", root)
        self.check_bill("muster-trainer", root, {"libgrpc29", "nlohmann-json3-dev", "torch"})
        said = self.in_root(root, "muster demo --out /tmp/demo --keep 2>&1")
        note(said[-1500:])
        self.require((root / "tmp" / "demo").exists(), "muster demo has left nothing")


class Compose:
    """The Compose file, run by podman-compose with settings of its own."""

    def __init__(self, folder):
        self.environment = containers.environment(folder)

    def run(self, *command, **kept):
        return run(*command, env=self.environment, **kept)

    def compose(self, *words, **kept):
        return self.run("podman-compose", "-f", COMPOSE, *words, **kept)

    def check(self, images):
        """A job over the two workers of the Compose file."""
        for name in LIMITS_MB:
            self.run("podman", "load", "--input", images.path(name))
        try:
            self.compose("up", "--detach")
            # podman-compose's own exec does not pass on how the command ended.
            inside = lambda service, text: self.run("podman", "exec", f"compose_{service}_1", "sh", "-ec", text)  # noqa: E731
            inside("coordinator", """i=0; until muster nodes | grep -c ready | grep -qx 2; do
                i=$((i + 1)); [ $i -lt 120 ] || { muster nodes; exit 1; }; sleep 0.5; done""")
            inside("worker-1", "muster-trainer init-model --preset tiny --out /shared/model")
            with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as rows:
                write_rows(pathlib.Path(rows.name))
                inside("worker-1", f"cat >/shared/rows.jsonl <<'END'\n{rows.read()}\nEND\ncat >/shared/job.json <<'END'\n"
                                   f"{json.dumps(JOB)}\nEND")
            inside("coordinator", "muster submit /shared/job.json --wait")
            steps = inside("worker-2", "cat /shared/out/metrics.jsonl").count('"step"')
            images.require(steps >= 12, f"the job of the Compose file has {steps} steps")
        finally:
            note(self.compose("logs", check=False)[-3000:])
            self.compose("down", "--volumes", check=False)
            self.run("podman", "network", "rm", "--force", "compose_default", check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=pathlib.Path, help="leave the images in this folder, and take those that are there")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        note("mounts and chroot need root")
        return 1
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "yes"
        # One for all images, whatever is committed meanwhile.
        os.environ.setdefault("SOURCE_DATE_EPOCH", run("git", "-c", f"safe.directory={ROOT}", "-C", ROOT, "log", "-1", "--format=%ct").strip())
        os.execvp("unshare", [*containers.NAMESPACE, sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory(prefix="muster-images-") as temp:
        temp = pathlib.Path(temp)
        folder = arguments.keep or temp / "images"
        folder.mkdir(parents=True, exist_ok=True)
        images = Images(folder)
        images.make()
        images.check_again()
        for name, check in (("control", images.check_control), ("trainer", images.check_trainer)):
            (temp / name).mkdir()
            check(temp / name)
        (temp / "podman").mkdir()
        ran = "no"
        try:
            Compose(temp / "podman").check(images)
            ran = "yes"
        except AssertionError as error:
            note(str(error))
            images.require(False, "the Compose file's job")
        (temp / "rootless").mkdir(mode=0o755)
        temp.chmod(0o711)
        images.check_rootless(temp / "rootless")
        print(json.dumps({"seed": 0, "sizes_mb": images.sizes, "compose": ran, "violations": images.violations}))
    return 1 if images.violations else 0


if __name__ == "__main__":
    sys.exit(main())
