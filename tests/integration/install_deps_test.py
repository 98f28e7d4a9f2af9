"""deploy/install-deps fetches LibTorch's wheel once, and unpacks of it what this machine builds with.

The network, dpkg and the machine's CUDA are stand-ins; the script, its cache and unzip are real.
"""

import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CPU_HALF = ("include/ATen/ATen.h", "lib/libc10.so", "lib/libgomp.so.1", "lib/libtorch_cpu.so")
CUDA_HALF = tuple(f"lib/lib{name}.so" for name in ("c10_cuda", "torch_cuda", "torch_cuda_linalg", "torch_nvshmem"))

# `python3 -m pip download ... --requirement FILE --dest DIR`
PIP = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --requirement) file=$2 ;; --dest) dest=$2 ;; esac
  shift
done
echo "$(basename "$file")" >>"$FETCHED"
mkdir -p "$dest"
cp "$WHEELS/$(basename "$file")/"* "$dest"
"""


class InstallDepsTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.dir = pathlib.Path(temp.name)
        (self.dir / "bin").mkdir()
        self.put_program("python3", PIP)
        self.put_program("dpkg-query", "#!/bin/sh\necho installed\n")
        self.put_program("ldconfig", "#!/bin/sh\necho libcudart.so.13 libcupti.so.13\n")
        self.put_wheel("libtorch.txt", "torch-1-cp311.whl", [f"torch/{name}" for name in CPU_HALF + CUDA_HALF])
        self.put_wheel("cuda-runtime.txt", "nvidia_runtime-1.whl", ["nvidia/cu13/lib/libcudart.so.13"])

    def put_program(self, name, text):
        path = self.dir / "bin" / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def put_wheel(self, requirements, name, members):
        folder = self.dir / "wheels" / requirements
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / name, "w") as wheel:
            for member in members:
                wheel.writestr(member, member)

    def install(self, nvcc):
        """Runs the script; returns what it fetched."""
        if nvcc:
            self.put_program("nvcc", "#!/bin/sh\n")
        fetched = self.dir / "fetched"
        fetched.write_text("")
        folders = [f for f in os.environ["PATH"].split(":") if f == "/usr/bin" or not os.path.exists(f"{f}/nvcc")]
        environment = {"PATH": ":".join([f"{self.dir}/bin", *folders]), "HOME": str(self.dir),
                       "CUDA_HOME": str(self.dir),
                       "FETCHED": str(fetched), "WHEELS": str(self.dir / "wheels")}
        if not nvcc and shutil.which("nvcc", path=environment["PATH"]):
            self.skipTest("this machine's PATH has an nvcc")
        done = subprocess.run([ROOT / "deploy" / "install-deps"], env=environment, capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return fetched.read_text().split()

    @property
    def home(self):
        return next((self.dir / ".cache" / "muster").glob("libtorch-*"))

    def expect_halves(self, cuda):
        for name in CPU_HALF:
            self.assertTrue((self.home / "torch" / name).exists(), name)
        for name in CUDA_HALF:
            self.assertEqual((self.home / "torch" / name).exists(), cuda, name)

    def test_both_halves_come_out_of_one_download(self):
        self.assertEqual(self.install(nvcc=True), ["libtorch.txt"])
        self.expect_halves(cuda=True)
        self.assertEqual(self.install(nvcc=True), [])

    def test_without_nvcc_the_cuda_half_stays_in_the_wheel(self):
        self.assertEqual(self.install(nvcc=False), ["libtorch.txt"])
        self.expect_halves(cuda=False)
        self.assertEqual(self.install(nvcc=False), [])

    def test_nvcc_that_is_installed_later_adds_the_cuda_half(self):
        self.install(nvcc=False)
        marker = self.home / "torch" / "untouched"
        marker.touch()
        self.assertEqual(self.install(nvcc=True), ["libtorch.txt"])
        self.expect_halves(cuda=True)
        self.assertTrue(marker.exists())

    def test_a_folder_without_its_stamp_is_made_again(self):
        self.install(nvcc=True)
        (self.home / "stamp").unlink()
        (self.home / "torch" / "lib" / "libtorch_cuda.so").unlink()
        self.assertEqual(self.install(nvcc=True), ["libtorch.txt"])
        self.expect_halves(cuda=True)

    def test_the_stamps_are_those_of_earlier_versions(self):
        self.install(nvcc=True)
        requirements = [(ROOT / "deploy" / name).read_text() for name in ("libtorch.txt", "cuda-runtime.txt")]
        self.assertEqual((self.home / "stamp").read_text(), "".join(requirements))
        self.assertEqual((self.home / "stamp-cuda").read_text(), requirements[0])

    def test_the_run_time_is_fetched_where_the_machine_has_none(self):
        self.put_program("ldconfig", "#!/bin/sh\n")
        self.assertEqual(self.install(nvcc=True), ["libtorch.txt", "cuda-runtime.txt"])
        self.assertTrue((self.home / "nvidia" / "cu13" / "lib" / "libcudart.so.13").exists())


if __name__ == "__main__":
    unittest.main()
