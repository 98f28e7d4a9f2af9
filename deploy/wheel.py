#!/usr/bin/env python3
"""Makes the Python wheel of Muster out of a finished build.

  wheel.py BUILD OUT     writes OUT/muster_training-VERSION-py3-none-PLATFORM.whl, and what it is made of (.cdx.json)

The programs are the components that `cmake --install` knows. auditwheel, of the Python that runs this, puts in the libraries
that they need beside those of LibTorch and CUDA, which are those of the user's torch. Equal programs make an equal wheel: its
entries are sorted and bear the time SOURCE_DATE_EPOCH, by default that of the commit.
"""

import argparse
import base64
import csv
import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

from packaging.version import Version

import sbom

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "deploy" / "reference"))

import manuals  # noqa: E402

NAME = "muster_training"
COMPONENTS = ("cli", "coordinator", "worker", "trainer")
OF_TORCH = ("libtorch*", "libc10*", "libgomp*", "libcudart*", "libcupti*", "libnccl*", "libcuda*", "libnvidia-ml*")
# Where shells look below the prefix of a program's bin/; zsh where its fpath says.
COMPLETIONS = {"bash": "bash-completion/completions/muster", "zsh": "zsh/site-functions/_muster",
               "fish": "fish/vendor_completions.d/muster.fish"}
METADATA = """Metadata-Version: 2.4
Name: muster-training
Version: {version}
Summary: Trains large language models on many machines and keeps the training running when parts of them fail
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.8
Provides-Extra: trainer
Requires-Dist: torch==2.11.*; extra == "trainer"
Description-Content-Type: text/markdown

"""
WHEEL = """Wheel-Version: 1.0
Generator: deploy/wheel.py
Root-Is-Purelib: false
Tag: py3-none-linux_x86_64
"""


def version_of(build):
    """As Python writes it: 0.2.0a0 for 0.2.0-alpha."""
    return str(Version(sbom.output_of(build / "bin" / "muster", "--version").split()[1]))


def install(build, folder):
    for component in COMPONENTS:
        subprocess.run(["cmake", "--install", build, "--strip", "--component", component, "--prefix", folder], check=True,
                       stdout=subprocess.DEVNULL)


def write_completions(build, stage, version):
    for shell, place in COMPLETIONS.items():
        file = stage / f"{NAME}-{version}.data" / "data" / "share" / place
        file.parent.mkdir(parents=True)
        file.write_text(sbom.output_of(build / "bin" / "muster", "completion", shell))


def write_manuals(build, stage, version):
    """Where man looks beside a folder of PATH."""
    folder = stage / f"{NAME}-{version}.data" / "data" / "share" / "man" / "man1"
    folder.mkdir(parents=True)
    for _, name, text in manuals.manuals(build / "bin"):
        (folder / f"{name}.1").write_text(text, "utf-8")


def notices(parts):
    """What Debian's packages say of the rights to what is copied out of them, by package."""
    found = {}
    for part in parts:
        file = pathlib.Path("/usr/share/doc") / part["name"] / "copyright"
        if part["purl"].startswith("pkg:deb/") and file.exists():
            found[part["name"]] = file.read_text("utf-8")
    return found


def write_metadata(build, stage, version):
    info = stage / f"{NAME}-{version}.dist-info"
    for folder in ("licenses", "sboms"):
        (info / folder).mkdir(parents=True)
    programs = sorted(path for folder in ("bin", "lib") for path in (stage / NAME / folder).iterdir())
    targets = [f"bin/{path.name}" for path in programs]
    parts = sbom.components(build, targets, [build / target for target in targets])
    scripts = [path.name for path in programs if path.parent.name == "bin" and path.name not in ("muster-guardian", "muster-launcher")]
    (info / "METADATA").write_text(METADATA.format(version=version) + (ROOT / "README.md").read_text("utf-8"))
    (info / "WHEEL").write_text(WHEEL)
    (info / "entry_points.txt").write_text("[console_scripts]\n" + "".join(f"{name} = {NAME}.__main__:main\n" for name in scripts))
    (info / "licenses" / "LICENSE").write_text((ROOT / "LICENSE").read_text("utf-8"))
    for name, text in notices(parts).items():
        (info / "licenses" / f"{name}.txt").write_text(text)
    product = sbom.component("muster-training", version, f"pkg:pypi/muster-training@{version}")
    (info / "sboms" / "muster.cdx.json").write_text(sbom.cyclonedx(product, parts))
    return info


def record(stage, info):
    rows = []
    for path in sorted(path for path in stage.rglob("*") if path.is_file()):
        data = path.read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append([path.relative_to(stage).as_posix(), f"sha256={digest}", len(data)])
    rows.append([f"{info.name}/RECORD", "", ""])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    (info / "RECORD").write_text(text.getvalue())


def pack(stage, wheel):
    moment = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:  # auditwheel compresses
        for path in sorted(path for path in stage.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(stage).as_posix(), moment)
            entry.external_attr = (0o100755 if path.parent.name == "bin" else 0o100644) << 16
            archive.writestr(entry, path.read_bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    os.environ.setdefault("SOURCE_DATE_EPOCH", sbom.output_of("git", "-C", ROOT, "log", "-1", "--format=%ct").strip())
    version = version_of(options.build)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="muster-wheel-") as temp:
        stage = pathlib.Path(temp) / "stage"
        install(options.build, stage / NAME)
        for source in (ROOT / "deploy" / "python" / NAME).glob("*.py"):
            (stage / NAME / source.name).write_bytes(source.read_bytes())
        write_completions(options.build, stage, version)
        write_manuals(options.build, stage, version)
        info = write_metadata(options.build, stage, version)
        shutil.copy(info / "sboms" / "muster.cdx.json", options.out / f"{NAME}-{version}.cdx.json")
        record(stage, info)
        unrepaired = pathlib.Path(temp) / f"{NAME}-{version}-py3-none-linux_x86_64.whl"
        pack(stage, unrepaired)
        tools = pathlib.Path(sys.executable).parent
        subprocess.run([tools / "auditwheel", "repair", unrepaired, "--wheel-dir", options.out, "--only-plat", "-z", "9",
                        *(word for library in OF_TORCH for word in ("--exclude", library))],
                       check=True, env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"})


if __name__ == "__main__":
    main()
