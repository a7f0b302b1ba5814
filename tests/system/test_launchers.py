"""Foreign launchers start our program, and ours starts foreign programs."""
import os
import re
import resource
import subprocess
import unittest

from program import ORTHANT, FolderTest, clean_environment, free_port, only_json, orthant, python, run, wait_until

BENCH = [ORTHANT, "bench", "comm", "--max-bytes", "64KiB", "--rounds", "1", "--json"]


class Torchrun(unittest.TestCase):
    def test_starts_our_ranks(self):
        torchrun = os.path.join(os.path.dirname(python()), "torchrun")
        finished = run(torchrun, "--no-python", "--nproc_per_node", 4, *BENCH, timeout=120)
        self.assertEqual(only_json(self, finished)["world_size"], 4)


class Launch(unittest.TestCase):
    def test_starts_our_ranks(self):
        finished = orthant("launch", "--nproc", 3, "--", ORTHANT, "doctor", "--mesh", "dp=3")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertIn("\nAll groups agree.", finished.stdout)

    def test_passes_our_result_through_and_marks_each_line_of_stderr_once(self):
        finished = orthant("launch", "--nproc", 2, "--", *BENCH)
        self.assertEqual(only_json(self, finished)["world_size"], 2)
        self.assertIn("[rank 0] orthant: ", finished.stderr)
        self.assertNotIn("[rank 0] [rank", finished.stderr)

    def test_gives_any_program_torchruns_variables(self):
        script = 'echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR'
        finished = orthant("launch", "--nproc", 2, "--", "sh", "-c", script)
        self.assertEqual(sorted(finished.stdout.splitlines()), ["[rank 0] 0 0 2 2 127.0.0.1", "[rank 1] 1 1 2 2 127.0.0.1"])

    def test_serves_the_store_that_pythons_ranks_expect(self):
        script = ("import torch, torch.distributed as d; d.init_process_group('gloo'); x = torch.ones(1); d.all_reduce(x); "
                  "print('sum', int(x)); d.destroy_process_group()")
        finished = orthant("launch", "--nproc", 2, "--", python(), "-c", script, timeout=120)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual(sorted(finished.stdout.splitlines()), ["[rank 0] sum 2", "[rank 1] sum 2"])

    def test_passes_on_the_exit_code_and_last_lines_of_the_first_failing_rank(self):
        script = 'if [ $RANK = 1 ]; then echo the reason >&2; exit 42; fi; sleep 60'
        finished = orthant("launch", "--nproc", 3, "--", "sh", "-c", script)
        self.assertEqual(finished.returncode, 42)
        self.assertIn("rank 1: exit code 42", finished.stderr)
        self.assertIn("the reason", finished.stderr)

    def test_open_files_are_as_many_as_the_system_allows_for_the_launcher_and_as_the_user_says_for_ranks(self):
        few = "ulimit -Sn 200; exec \"$@\""
        finished = run("sh", "-c", few, "sh", ORTHANT, "launch", "--nproc", 1, "--", "sh", "-c", "ulimit -Sn")
        self.assertEqual(finished.stdout, "[rank 0] 200\n", finished.stderr)
        words = ["sh", "-c", few, "sh", ORTHANT, "launch", "--nnodes", "2", "--rendezvous", f"127.0.0.1:{free_port()}", "--no-token", "--", "true"]
        waiting = subprocess.Popen(words, stderr=subprocess.DEVNULL, env=clean_environment())

        def limits():
            with open(f"/proc/{waiting.pid}/limits") as f:
                return re.search(r"Max open files +(\d+) +(\d+)", f.read()).groups()
        try:
            self.assertTrue(wait_until(lambda: len(set(limits())) == 1, 20), limits())
        finally:
            waiting.kill()
            waiting.wait()

    def test_says_what_to_write_instead(self):
        for words, reason in ((("--node-rank", 1, "--", "true"), "--node-rank 1 with --nnodes 1\n  fix: add --nnodes"),
                              (("--timeout", "start=5", "--", "true"), "give it one number, e.g. --timeout 300"),
                              (("--make-token", "unwritten", "--", "true"), "--make-token with a program"),
                              (("--make-token", ""), "--make-token is empty"),
                              (("--make-token", "."), "cannot make the token file .: it is a folder")):
            finished = orthant("launch", *words)
            self.assertEqual((finished.returncode, finished.stdout), (2, ""), finished.stderr)
            self.assertIn(reason, finished.stderr)

    def test_names_the_limit_that_its_own_table_meets(self):
        limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        finished = orthant("launch", "--", "true", preexec_fn=limited)
        self.assertEqual(finished.returncode, 2, finished.stderr)
        self.assertIn("File too large\n  fix: raise the limit on file sizes (ulimit -f)", finished.stderr)

    def test_writes_job_scripts(self):
        for kind in ("slurm", "pbs", "k8s"):
            finished = orthant("launch", "--nproc", 4, "--nnodes", 2, "--gpus-per-node", 4, "--gpu-type", "a100", "--script", kind, "--max-restarts", 7,
                               "--", "./train", "--config", "my run.json")
            self.assertEqual(finished.returncode, 0, finished.stderr)
            self.assertIn("orthant launch", finished.stdout.replace("'", "").replace('"', ""))
            self.assertIn("my run.json", finished.stdout)
            self.assertRegex(finished.stdout, r"--max-restarts\W+7")
            # A node finds the program where it lies; a container has it in its path.
            self.assertEqual(f"exec {os.path.realpath(ORTHANT)} launch" in finished.stdout, kind != "k8s", finished.stdout)
            self.assertIn("ORTHANT_TOKEN", finished.stdout)
            self.assertNotRegex(finished.stdout, "[0-9a-f]{64}")
            one = orthant("launch", "--nproc", 4, "--script", kind, "--", "./train")
            self.assertNotIn("ORTHANT_TOKEN", one.stdout)


class Tokens(FolderTest):
    def refused(self, *words, token=None):
        environment = clean_environment(**({"ORTHANT_TOKEN": token} if token is not None else {}))
        finished = orthant("launch", "--nnodes", 2, "--rendezvous", "127.0.0.1:1", *words, "--", "true", env=environment)
        self.assertEqual((finished.returncode, finished.stdout), (2, ""), finished.stderr)
        return finished.stderr

    def test_are_made_for_ones_own_eyes(self):
        token = self.path("job.token")
        self.assertEqual(orthant("launch", "--make-token", token).returncode, 0)
        self.assertEqual(os.stat(token).st_mode & 0o7777, 0o600)
        with open(token) as f:
            self.assertRegex(f.read(), r"\A[0-9a-f]{64}\n\Z")
        again = orthant("launch", "--make-token", token)
        self.assertEqual(again.returncode, 2)
        self.assertIn("cannot make the token file", again.stderr)

    def test_are_asked_for_on_several_hosts(self):
        errors = self.refused()
        self.assertIn("2 hosts without a job token", errors)
        self.assertIn("orthant launch --make-token FILE", errors)
        self.assertIn("--no-token", errors)

    def test_that_are_none_are_refused_without_being_shown(self):
        errors = self.refused(token="my-secret-words")
        self.assertIn("ORTHANT_TOKEN holds no job token: 64 hexadecimal digits are expected", errors)
        self.assertNotIn("my-secret", errors)

    def test_in_files_that_others_can_read_are_refused_with_the_command(self):
        token = self.path("job.token")
        orthant("launch", "--make-token", token)
        os.chmod(token, 0o644)
        errors = self.refused("--token-file", token)
        self.assertIn(f"token file {token} can be used by others (mode 0644)", errors)
        self.assertIn(f"chmod 600 {token}", errors)
        self.assertIn("--token-file beside --no-token", self.refused("--token-file", token, "--no-token"))

    def test_are_not_left_out_by_a_flag(self):
        errors = self.refused("--no-token", token="ab" * 32)
        self.assertIn("--no-token although ORTHANT_TOKEN is set", errors)
        self.assertIn("leave out --no-token, or unset ORTHANT_TOKEN", errors)

    def test_that_nobody_asks_for_are_spoken_of(self):
        finished = orthant("launch", "--nnodes", 2, "--node_rank", 1, "--rendezvous", "127.0.0.1:1", "--timeout", 0.1, "--no-token", "--", "true")
        self.assertEqual(finished.stderr.count("--no-token: whoever reaches 127.0.0.1:1 can take part in this job"), 1, finished.stderr)

    def test_do_not_reach_programs(self):
        finished = orthant("launch", "--nproc", 1, "--", "sh", "-c", "env; tr '\\0' '\\n' < /proc/$PPID/environ",
                           env=clean_environment(ORTHANT_TOKEN="ab" * 32))
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertNotIn("ab" * 32, finished.stdout)
        self.assertIn("RANK=0", finished.stdout)


class Mpi(unittest.TestCase):
    def test_open_mpi_starts_our_ranks(self):
        finished = run("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", 4, *BENCH, timeout=120,
                       env=clean_environment(OMPI_MCA_plm="isolated"))
        self.assertEqual(only_json(self, finished)["world_size"], 4)


if __name__ == "__main__":
    unittest.main()
