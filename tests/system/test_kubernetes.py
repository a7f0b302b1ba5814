"""The manifests of `orthant launch --script k8s` against the schemas that Kubernetes publishes, as kubernetes-validate ships them: strictly, so
that a field which does not exist is refused, too."""
import glob
import os
import unittest

import kubernetes_validate
import yaml

from program import orthant

SCHEMAS = os.path.join(os.path.dirname(kubernetes_validate.__file__), "kubernetes-json-schema")
PROGRAM = ("--", "orthant", "train", "--config", "/data/run.json", "--set", "name=$(x) 'it''s'")


def versions():
    """The oldest and the newest whose schemas are there, such as 1.25 and 1.37."""
    found = {tuple(map(int, os.path.basename(path)[1:].split(".")[:2])) for path in glob.glob(os.path.join(SCHEMAS, "v*-local-strict"))}
    return [".".join(map(str, version)) for version in (min(found), max(found))]


class Manifests(unittest.TestCase):
    def manifests(self, *words):
        written = orthant("launch", "--script", "k8s", *words, *PROGRAM)
        self.assertEqual(written.returncode, 0, written.stderr)
        return list(yaml.safe_load_all(written.stdout))

    def test_are_valid_with_and_without_every_option(self):
        cards = ("--gpus-per-node", 4, "--gpu-type", "NVIDIA-H100-80GB-HBM3", "--cores-per-node", 32)
        for words in ((), ("--nproc", 4, "--nnodes", 2, "--no-token"), ("--nproc", 4, "--nnodes", 8, *cards),
                      ("--nnodes", 2, "--queue", "research", "--job-name", "run-7", "--walltime", "48:00:00", "--image", "registry/team/orthant:1.2", *cards)):
            documents = self.manifests(*words)
            self.assertEqual([document["kind"] for document in documents], ["Service", "Job"])
            for document in documents:
                for version in versions():
                    with self.subTest(kind=document["kind"], words=words, version=version):
                        kubernetes_validate.validate(document, version, strict=True)

    def test_the_validator_refuses_what_is_no_manifest(self):
        for place, key, value in ((("spec",), "completionsMode", "Indexed"), (("spec",), "completions", "two"),
                                  (("spec", "template", "spec"), "restartPolicie", "Never"), (("spec", "template", "spec", "containers", 0), "image", 7)):
            job = self.manifests("--nnodes", 2, "--no-token")[1]
            inner = job
            for step in place:
                inner = inner[step]
            inner[key] = value
            with self.assertRaises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate(job, versions()[-1], strict=True)


if __name__ == "__main__":
    unittest.main()
