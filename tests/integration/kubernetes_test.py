"""The manifests of deploy/kubernetes: valid by the schemas of Kubernetes' API, and consistent with each other and with what
muster-worker --auto reads. No cluster is there to run them."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, ROOT  # noqa: E402

MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "muster"
PYTHON = CACHE / "kubernetes" / "bin" / "python"
# The oldest release with all that the manifests use, and the newest that the validator knows.
RELEASES = ("1.29", "1.37")

# Strict: a key that the schema does not have is an error, which the API server would drop without a word.
VALIDATE = """
import json, sys, yaml, kubernetes_validate
documents = [each for path in sys.argv[2:] for each in yaml.safe_load_all(open(path, encoding="utf-8"))]
problems = []
for document in documents:
    for release in sys.argv[1].split(","):
        try:
            kubernetes_validate.validate(document, release, strict=True)
        except Exception as error:
            problems.append(f"{document.get('kind')} in {release}: {str(error)[:300]}")
print(json.dumps({"documents": documents, "problems": problems}))
"""


def read(*paths):
    done = subprocess.run([str(PYTHON), "-c", VALIDATE, ",".join(RELEASES), *map(str, paths)], check=True, text=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)


class KubernetesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        found = read(*MANIFESTS)
        cls.problems = found["problems"]
        cls.by_kind = {}
        for document in found["documents"]:
            cls.by_kind.setdefault(document["kind"], []).append(document)

    def test_they_are_valid(self):
        self.assertEqual(sorted(self.by_kind), ["DaemonSet", "Job", "Service", "StatefulSet"])
        self.assertEqual(self.problems, [])

    def test_the_validator_finds_a_wrong_key(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as wrong:
            wrong.write((ROOT / "deploy/kubernetes/indexed-job.yaml").read_text().replace("parallelism:", "paralelism:"))
            wrong.flush()
            self.assertEqual(len(read(wrong.name)["problems"]), len(RELEASES))

    def pods(self):
        for kind in ("DaemonSet", "Job", "StatefulSet"):
            for each in self.by_kind[kind]:
                yield each, each["spec"]["template"]

    def test_every_image_is_one_that_a_release_makes_of_this_version(self):
        version = subprocess.run([BIN / "muster", "--version"], check=True, text=True, stdout=subprocess.PIPE).stdout.split()[1]
        for each, template in self.pods():
            spec = template["spec"]
            for container in spec.get("initContainers", []) + spec["containers"]:
                self.assertIn(container["image"], (f"localhost/muster-control:{version}", f"localhost/muster-trainer:{version}"))
                mounted = {mount["name"] for mount in container["volumeMounts"]}
                known = {volume["name"] for volume in spec.get("volumes", [])}
                known |= {claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", [])}
                self.assertLessEqual(mounted, known)

    def test_every_flag_is_one_that_its_program_has(self):
        for _, template in self.pods():
            for container in template["spec"]["containers"]:
                program, *arguments = container["args"]
                auto = ["--auto"] if "--auto" in arguments else []
                known = subprocess.run([BIN / program, *auto, "--help"], check=True, text=True, stdout=subprocess.PIPE).stdout
                for argument in arguments:
                    self.assertIn(argument.split("=")[0], known, program)

    def test_pods_that_use_memory_between_ranks_have_more_of_it_than_the_default(self):
        for kind in ("DaemonSet", "Job"):
            spec = self.by_kind[kind][0]["spec"]["template"]["spec"]
            memory = [volume["name"] for volume in spec["volumes"] if volume.get("emptyDir", {}).get("medium") == "Memory"]
            mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
            self.assertEqual([mounts[name] for name in memory], ["/dev/shm"])

    def test_services_select_the_pods_that_they_are_for(self):
        services = {service["metadata"]["name"]: service["spec"] for service in self.by_kind["Service"]}
        coordinator = self.by_kind["StatefulSet"][0]
        labels = coordinator["spec"]["template"]["metadata"]["labels"]
        self.assertLessEqual(services["muster-coordinator"]["selector"].items(), labels.items())
        ports = {port["containerPort"] for port in coordinator["spec"]["template"]["spec"]["containers"][0]["ports"]}
        self.assertEqual({port["port"] for port in services["muster-coordinator"]["ports"]}, ports)
        job = self.by_kind["Job"][0]
        headless = services[job["spec"]["template"]["spec"]["subdomain"]]
        self.assertEqual(headless["clusterIP"], "None")
        self.assertTrue(headless["publishNotReadyAddresses"], "supervisors look for their own name as they start")
        self.assertEqual(headless["selector"], {"batch.kubernetes.io/job-name": job["metadata"]["name"]})

    def environment(self, job):
        """That of the pod with index 1, with what kubelet fills in."""
        from_labels = {"metadata.labels['batch.kubernetes.io/job-name']": job["metadata"]["name"],
                       "metadata.labels['batch.kubernetes.io/controller-uid']": "0f3c2a1b-77aa-4b6e-9d0e-5a5a5a5a5a5a"}
        values = {"JOB_COMPLETION_INDEX": "1"}
        for variable in job["spec"]["template"]["spec"]["containers"][0]["env"]:
            field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            values[variable["name"]] = from_labels[field] if field else variable["value"]
        return values

    def auto(self, environment):
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
        return subprocess.run([BIN / "muster-worker", "--auto", "--interface", "lo", "--job", "/nonexistent.yaml"],
                              env={**kept, **environment}, check=False, text=True, capture_output=True, timeout=60)

    def test_the_indexed_jobs_variables_are_those_that_a_supervisor_needs(self):
        job = self.by_kind["Job"][0]
        environment = self.environment(job)
        self.assertEqual(job["spec"]["completions"], job["spec"]["parallelism"], "all pods run at once")
        self.assertEqual(environment["MUSTER_COMPLETIONS"], str(job["spec"]["completions"]))
        done = self.auto(environment)
        self.assertEqual(done.returncode, 65, done.stderr)
        self.assertIn("/nonexistent.yaml", done.stderr, "the job file is all that is missing")
        for name in environment:
            if name == "JOB_COMPLETION_INDEX":
                continue
            without = self.auto({key: value for key, value in environment.items() if key != name})
            self.assertEqual(without.returncode, 78, name)
            self.assertIn(name, without.stderr)

    def test_each_exit_code_of_a_supervisor_has_a_rule(self):
        spec = self.by_kind["Job"][0]["spec"]
        rules = {}
        for rule in spec["podFailurePolicy"]["rules"]:
            for code in rule.get("onExitCodes", {}).get("values", []):
                rules[code] = rule["action"]
        text = (ROOT / "worker/allocation/job_monitor.h").read_text(encoding="utf-8")
        codes = {int(line.split("=")[1].split(";")[0]) for line in text.splitlines() if "int kExit" in line}
        self.assertEqual(set(rules), codes - {0})
        self.assertEqual({code for code, action in rules.items() if action == "Ignore"}, {68, 75})
        self.assertEqual(spec["template"]["spec"]["restartPolicy"], "Never", "podFailurePolicy needs it")


if __name__ == "__main__":
    unittest.main()
