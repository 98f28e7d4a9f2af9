#!/usr/bin/env python3
"""What a package of Muster is made of, as CycloneDX, out of what was really compiled, linked and packed.

  sbom.py debs BUILD OUT                       writes OUT/PACKAGE.cdx.json for each OUT/PACKAGE.deb: what is within its programs
  sbom.py image NAME VERSION STATUS BUILD OUT  writes OUT/NAME-VERSION.cdx.json: the packages of STATUS, which is dpkg's file in
                                               the image, what is within ours, and what the image has of LibTorch and CUDA

Headers and static libraries are those that ninja read for the programs; shared libraries of the wheel are those that the dynamic
linker finds for them, those of .debs are in the packages that they depend on. A file belongs to the Debian package that installed
it; LibTorch and CUDA name their versions in headers, or are those that deploy/*.txt pin.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
from urllib.parse import quote

ROOT = pathlib.Path(__file__).resolve().parents[1]
DPKG = pathlib.Path("/var/lib/dpkg/info")
# What Debian has no package of: a header of it, and its version there.
OTHERS = {
    "pkg:pypi/torch": ("/torch/headeronly/version.h", r'define TORCH_VERSION \\\s*"([\d.]+)"'),
    "pkg:generic/cuda": ("/include/cuda.h", r"define CUDA_VERSION (\d+)"),
}


def output_of(*command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def shared_libraries(programs):
    """The files that the dynamic linker maps for these programs and libraries."""
    return {os.path.realpath(path) for program in programs
            for path in re.findall(r"=> (/\S+)", output_of("ldd", program))}


def compiled_and_linked(build, targets):
    """The files outside of the build that ninja read for its targets."""
    inputs = output_of("ninja", "-C", build, "-t", "inputs", *targets).splitlines()
    objects = [name for name in inputs if name.endswith((".o", ".gch"))]
    headers = output_of("ninja", "-C", build, "-t", "deps", *objects)
    names = {line.strip() for line in (*inputs, *headers.splitlines())}
    return {os.path.realpath(name) for name in names if re.match(r"/\S+\.(h|hh|hpp|ipp|inc|cuh|a|so)\b|/usr/include/", name)}


def owners(files):
    """For each Debian package that installed one of the files: its version."""
    wanted = {path.removeprefix("/usr") for path in files}
    found = {file.name.split(":")[0].removesuffix(".list") for file in DPKG.glob("*.list")
             if any(line.removeprefix("/usr") in wanted for line in file.read_text("utf-8").splitlines())}
    versions = output_of("dpkg-query", "-W", "-f", "${Package} ${Version}\n", *found) if found else ""
    return dict(line.split() for line in versions.splitlines())


def component(name, version, purl):
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def of_debian(packages):
    return [component(name, version, f"pkg:deb/debian/{quote(name)}@{quote(version, safe=':')}?arch=amd64")
            for name, version in packages.items()]


def components(build, targets, programs):
    """Sorted components of CycloneDX. `programs`: what of the targets carries its shared libraries, as files of the build."""
    files = compiled_and_linked(build, targets)
    if not programs:
        files = {path for path in files if not re.search(r"\.so\b", path)}
    files |= shared_libraries(programs)
    found = of_debian(owners(files))
    for purl, (header, version) in OTHERS.items():
        for path in (path for path in files if path.endswith(header)):
            known = re.search(version, pathlib.Path(path).read_text("utf-8")).group(1)
            found.append(component(purl.rpartition("/")[2], known, f"{purl}@{known}"))
    return in_order(found)


def in_order(parts):
    return sorted({each["bom-ref"]: each for each in parts}.values(), key=lambda each: each["bom-ref"])


def cyclonedx(product, parts):
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": product},
            "components": parts,
            "dependencies": [{"ref": product["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}]}
    return json.dumps(bill, indent=1) + "\n"


def write_debs(build, out):
    for package in sorted(out.glob("muster-*.deb")):
        name, version, architecture = package.stem.split("_")
        listed = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE).stdout
        files = output_of("tar", "--list", input=listed.decode("latin-1"), encoding="latin-1").splitlines()
        targets = sorted({f"bin/{path.name}" for path in map(pathlib.Path, files)
                          if path.parent.name in ("bin", "lib") and "programs" in path.parts and (build / "bin" / path.name).exists()})
        parts = components(build, targets, ()) if targets else []
        product = component(name, version, f"pkg:deb/muster/{name}@{quote(version, safe=':')}?arch={architecture}")
        package.with_suffix(".cdx.json").write_text(cyclonedx(product, parts), "utf-8")


def installed(status):
    """The components that dpkg's file of an image lists."""
    for paragraph in status.strip().split("\n\n"):
        fields = dict(re.findall(r"(?m)^([\w-]+): (.*)$", paragraph))
        if fields["Status"] == "install ok installed":
            name, version = fields["Package"], fields["Version"]
            vendor = "muster" if name.startswith("muster-") else "debian"
            yield component(name, version, f"pkg:deb/{vendor}/{quote(name)}@{quote(version, safe=':')}?arch={fields['Architecture']}")


def libtorch(build, cuda):
    """What an image has of LibTorch, and of CUDA's libraries, which are another package's or what deploy/*.txt pin."""
    library = build / "bin" / "libmuster_trainer.so"
    torch = next(path for path in shared_libraries([library]) if path.endswith("/libtorch_cpu.so"))
    header = pathlib.Path(torch).parents[1] / "include" / "torch" / "headeronly" / "version.h"
    version = re.search(OTHERS["pkg:pypi/torch"][1], header.read_text("utf-8")).group(1)
    yield component("torch", version, f"pkg:pypi/torch@{version}")
    owned = owners({path for path in shared_libraries([library]) if re.search(r"/lib(cudart|cupti)\.so", path)})
    yield from of_debian(owned)
    for file in ([] if owned else ["cuda-runtime.txt"]) + (["cuda-libraries.txt"] if cuda else []):
        for name, version in re.findall(r"(?m)^([\w-]+)==(\S+)", (ROOT / "deploy" / file).read_text("utf-8")):
            yield component(name, version, f"pkg:pypi/{name}@{version}")


def write_image(name, version, status, build, out):
    parts = list(installed(status.read_text("utf-8")))
    for part in [part for part in parts if part["name"].startswith("muster-")]:
        (bill,) = out.glob(f"{part['name']}_{part['version']}_*.cdx.json")
        parts += json.loads(bill.read_text("utf-8"))["components"]
    if "trainer" in name:
        parts += libtorch(build, cuda=name.endswith("cuda"))
    product = {**component(name, version, f"pkg:oci/{name}?tag={version}"), "type": "container"}
    (out / f"{name}-{version}.cdx.json").write_text(cyclonedx(product, in_order(parts)), "utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    forms = parser.add_subparsers(dest="form", required=True)
    debs, image = forms.add_parser("debs"), forms.add_parser("image")
    image.add_argument("name")
    image.add_argument("version")
    image.add_argument("status", type=pathlib.Path)
    for form in (debs, image):
        form.add_argument("build", type=pathlib.Path)
        form.add_argument("out", type=pathlib.Path)
    options = vars(parser.parse_args())
    {"debs": write_debs, "image": write_image}[options.pop("form")](**options)


if __name__ == "__main__":
    main()
