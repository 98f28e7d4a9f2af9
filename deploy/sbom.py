"""What a package of Muster is made of, as CycloneDX, out of what was really compiled and linked.

Headers and static libraries are those that ninja read for the programs; shared libraries are those that the dynamic
linker finds for them. A file belongs to the Debian package that installed it; LibTorch and CUDA name their versions in headers.
"""

import json
import os
import pathlib
import re
import subprocess
from urllib.parse import quote

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


def components(build, targets, programs):
    """Sorted components of CycloneDX. `programs`: what the targets are in the build, as files."""
    files = compiled_and_linked(build, targets) | shared_libraries(programs)
    found = [component(name, version, f"pkg:deb/debian/{quote(name)}@{quote(version, safe=':')}?arch=amd64")
             for name, version in owners(files).items()]
    for purl, (header, version) in OTHERS.items():
        for path in (path for path in files if path.endswith(header)):
            known = re.search(version, pathlib.Path(path).read_text("utf-8")).group(1)
            found.append(component(purl.rpartition("/")[2], known, f"{purl}@{known}"))
    return sorted(found, key=lambda each: each["bom-ref"])


def cyclonedx(name, version, parts):
    product = component(name, version, f"pkg:pypi/{name}@{version}")
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": product},
            "components": parts,
            "dependencies": [{"ref": product["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}]}
    return json.dumps(bill, indent=1) + "\n"
