"""The manners of every command: results on stdout, messages on stderr, exit codes, help, and errors that name a way out."""
import json
import os
import socket
import subprocess
import unittest

from program import (ORTHANT, SOURCE, children, clean_environment, listening, only_json, orthant, sockets_of, wait_until)


class Commands(unittest.TestCase):
    def refused(self, code, *words, has=(), env=None):
        finished = orthant(*words, env=env)
        self.assertEqual(finished.returncode, code, finished.stdout + finished.stderr)
        self.assertEqual(finished.stdout, "")
        for part in has:
            self.assertIn(part, finished.stderr)

    def test_help_has_an_example(self):
        for words in ([], ["mesh"], ["bench"], ["bench", "comm"], ["bench", "startup"], ["doctor"], ["launch"]):
            finished = orthant(*words, "--help")
            self.assertEqual(finished.returncode, 0, words)
            self.assertIn("Example:", finished.stdout)
            self.assertEqual(finished.stderr, "")

    def test_unknown_names_are_refused_with_the_nearest(self):
        self.refused(2, "dcotor", has=["'dcotor'", "orthant doctor"])
        self.refused(2, "mesh", "--mehs", "dp=2", has=["--mehs", "--mesh"])
        self.refused(2, "bench", "com", has=["'com'", "comm"])
        self.refused(2, "mesh", "--mesh", "pp=2,tpp=2", has=["tpp", "tp"])
        self.refused(2, "bench", "comm", "--backend", "gloo,nccll", has=["nccll", "nccl"])
        self.refused(2, "doctor", "--device", "gpu", "--mesh", "dp=2", has=["'gpu'", "cuda"])
        self.refused(2)

    def test_bad_meshes_are_refused(self):
        for mesh in ("pp=0", "pp=-2", "pp=x", "pp=2,pp=2", "pp=", "=2", "pp=99999999999999999999", "", "pp=2;tp=2", "dp=1.5"):
            finished = orthant("mesh", "--mesh", mesh)
            self.assertEqual(finished.returncode, 2, mesh)
            self.assertIn("fix:", finished.stderr)
        self.refused(2, "mesh", "--mesh", "pp=2,tp=2", "--world-size", "6", has=["4", "6", "fix:"])
        self.refused(2, "mesh", "--mesh", "pp=2,tp=2", "--order", "pp,pp", has=["fix:"])
        self.refused(2, "mesh", "--mesh", "dp=2", "--ranks-per-host", "0", has=["--ranks-per-host"])

    def test_mesh_that_does_not_fill_the_launchers_world_is_refused(self):
        env = clean_environment(RANK=0, WORLD_SIZE=3, LOCAL_RANK=0, LOCAL_WORLD_SIZE=3, MASTER_ADDR="127.0.0.1", MASTER_PORT=1)
        self.refused(2, "bench", "comm", "--mesh", "dp=2", has=["2", "3", "fix:"], env=env)

    def test_two_launchers_that_contradict_each_other_are_refused(self):
        env = clean_environment(RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=1, OMPI_COMM_WORLD_RANK=1,
                                OMPI_COMM_WORLD_SIZE=4, OMPI_COMM_WORLD_LOCAL_RANK=1, OMPI_COMM_WORLD_LOCAL_SIZE=4)
        self.refused(2, "bench", "comm", has=["torchrun", "Open MPI", "RANK=0", "OMPI_COMM_WORLD_RANK=1", "--launcher"], env=env)

    def test_half_a_launcher_is_refused(self):
        self.refused(2, "bench", "comm", has=["RANK", "WORLD_SIZE"], env=clean_environment(RANK=0))
        self.refused(2, "bench", "comm", has=["WORLD_SIZE"], env=clean_environment(RANK=5, WORLD_SIZE=2, MASTER_ADDR="h", MASTER_PORT=1))

    def test_port_in_use_is_refused(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            finished = orthant("launch", "--nproc", 1, "--nnodes", 2, "--rendezvous", f"127.0.0.1:{port}", "--timeout", 5, "--no-token", "--", "true")
            self.assertEqual(finished.returncode, 2, finished.stderr)
            self.assertIn(str(port), finished.stderr)
            env = clean_environment(RANK=0, WORLD_SIZE=2, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            finished = orthant("bench", "startup", "--timeout", 3, "--no-token", env=env)
            self.assertIn(finished.returncode, (2, 3), finished.stderr)
            self.assertIn(str(port), finished.stderr)

    def test_ranks_of_one_host_need_no_port(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            ranks = []
            for rank in range(2):
                env = clean_environment(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1",
                                        MASTER_PORT=taken.getsockname()[1])
                ranks.append(subprocess.Popen([ORTHANT, "bench", "startup", "--timeout", "20"], stdout=subprocess.DEVNULL,
                                              stderr=subprocess.PIPE, text=True, env=env))
            errors = [rank.communicate(timeout=60)[1] for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [0, 0], errors)

    def test_a_rank_that_never_arrives_is_named(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        env = clean_environment(RANK=0, WORLD_SIZE=2, LOCAL_RANK=0, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        self.refused(3, "bench", "startup", "--timeout", 1, has=["missing: rank 1", "1 of 2 ranks", "--timeout"], env=env)

    def test_bad_values_are_refused(self):
        self.refused(2, "bench", "comm", "--timeout", "-1", has=["--timeout"])
        self.refused(2, "bench", "comm", "--rounds", "many", has=["--rounds"])
        self.refused(2, "bench", "comm", "--max-bytes", "64Mib7", has=["--max-bytes"])
        self.refused(2, "bench", "comm", "--backend", "nccl", "--mesh", "dp=2", "--device", "cpu", has=["nccl", "gloo"])
        machine = only_json(self, orthant("doctor", "--json"))
        if not machine["built_with_cuda"] or machine["gpus"] == 0:
            remedy = "use --device cpu" if machine["built_with_cuda"] else "make program PRESET=cuda"
            self.refused(2, "doctor", "--mesh", "dp=2", "--device", "cuda", has=["cuda", remedy])
        self.refused(2, "launch", "--nproc", "0", "--", "true", has=["--nproc"])
        self.refused(2, "launch", "--nproc", "2", has=["no program", "--"])
        self.refused(2, "launch", "--nproc", "2", "--", "/no/such/program", has=["/no/such/program"])
        self.refused(2, "launch", "--nnodes", "2", "--node_rank", "2", "--rendezvous", "h:1", "--", "true", has=["0 to 1"])
        self.refused(2, "launch", "--nnodes", "2", "--", "true", has=["--rendezvous"])
        for words, has in ((("2:4",), ["--nnodes 2:4 without --max-restarts", "add --max-restarts"]),
                           (("4:2",), ["--nnodes 4:2: 4 is more than 2", "the smaller number first"]),
                           (("2-4",), ["--nnodes 2-4: is neither a number of hosts", "--nnodes 2:4"]),
                           (("2:4", "--max-restarts", "1", "--timeout", "9", "--regroup-seconds", "9"),
                            ["--regroup-seconds 9 with --timeout 9: nobody would wait so long", "raise --timeout"]),
                           (("2:4", "--max-restarts", "1", "--script", "pbs"), ["--nnodes 2:4 with --script", "use --nnodes 4"])):
            place = () if "--script" in words else ("--rendezvous", "h:1")
            self.refused(2, "launch", *place, "--nnodes", *words, "--", "true", has=has)
        self.refused(2, "launch", "--nnodes", "2", "--rendezvous", "a:1,b:1", "--", "true",
                     has=["--rendezvous a:1,b:1 names several places", "does not outlive that host", "name one HOST:PORT"])
        self.refused(2, "launch", "--script", "slrum", "--", "true", has=["slrum", "slurm"])

    def test_dashes_and_underscores_are_alike(self):
        a = orthant("mesh", "--mesh", "dp=4", "--ranks-per-host", "2", "--json")
        b = orthant("mesh", "--mesh", "dp=4", "--ranks_per_host=2", "--json")
        self.assertEqual(a.stdout, b.stdout)

    def test_mesh_json_is_the_contracts(self):
        document = only_json(self, orthant("mesh", "--mesh", "pp=2,tp=2,dp=4", "--order", "pp,tp,dp", "--json"))
        self.assertEqual(document["world_size"], 16)
        self.assertEqual(document["groups"]["tp"][0], [0, 4])
        self.assertIsNone(document["ranks"][0]["pp_previous"])
        self.assertEqual(document["ranks"][0]["pp_next"], 8)
        self.assertEqual({"world_size", "order", "ranks", "groups", "traffic"} - set(document), set())

    def test_doctor_lets_every_group_talk(self):
        document = only_json(self, orthant("doctor", "--mesh", "pp=2,dp=2,tp=2", "--json"))
        groups = {g["group"]: g for g in document["check"]["groups"]}
        self.assertEqual(set(groups), {"pp", "dp", "tp", "world"})
        self.assertTrue(all(g["seconds"] > 0 for g in groups.values()))
        self.assertIn("memory_bytes", only_json(self, orthant("doctor", "--json")))

    def test_bench_json_is_the_contracts(self):
        document = only_json(self, orthant("bench", "comm", "--mesh", "dp=3", "--max-bytes", "64KiB", "--rounds", 1, "--json"))
        self.assertEqual(document["world_size"], 3)
        self.assertEqual({r["op"] for r in document["rows"]},
                         {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_receive"})
        self.assertEqual({r["bytes"] for r in document["rows"]}, {4096, 65536})
        self.assertEqual(set(document["rows"][0]), {"backend", "op", "bytes", "placed", "median_seconds", "p90_seconds",
                                                    "bus_bytes_per_second"})
        document = only_json(self, orthant("bench", "startup", "--mesh", "dp=4", "--json"))
        self.assertEqual(document["world_size"], 4)
        self.assertGreater(document["pss_bytes_per_rank"], 1 << 20)
        self.assertGreater(document["first_collective_seconds"], 0)

    def test_one_rank_and_a_fake_backend_need_no_peers(self):
        for words in (["--mesh", "dp=1"], ["--mesh", "dp=2", "--backend", "fake"]):
            document = only_json(self, orthant("bench", "comm", *words, "--max-bytes", "4KiB", "--rounds", 1, "--json"))
            self.assertTrue(document["rows"])

    def test_no_socket_listens_on_a_public_address(self):
        job = subprocess.Popen([ORTHANT, "bench", "comm", "--mesh", "dp=2", "--backend", "gloo", "--rounds", "100000"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
        try:
            own = lambda: [a for i, a in listening().items() if i in sockets_of([job.pid, *children(job.pid)])]
            self.assertTrue(wait_until(lambda: len(own()) >= 2, 20))  # a device each; other backends have none: test_store.py
            for address in own():
                self.assertIn(address, ("0100007F", "00000000000000000000000001000000"))
        finally:
            job.terminate()
            job.wait()

    def test_a_result_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            finished = subprocess.run([ORTHANT, "mesh", "--mesh", "dp=2"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(finished.returncode, 4)
        self.assertIn("could not be written", finished.stderr)

    def test_a_reader_that_leaves_ends_the_ranks(self):
        job = subprocess.Popen([ORTHANT, "launch", "--nproc", "1", "--", "yes"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        job.stdout.readline()
        job.stdout.close()
        self.assertNotEqual(job.wait(10), 0)

    def test_options_without_effect_are_refused(self):
        self.refused(2, "doctor", "--mesh", "dp=2", "--bind", "203.0.113.7", has=["203.0.113.7"])
        self.refused(2, "doctor", "--mesh", "dp=2", "--rendezvous", "127.0.0.1:1", has=["--rendezvous"])
        self.refused(2, "doctor", "--mesh", "dp=2", "--backend", "fake", has=["fake"])
        self.refused(2, "bench", "comm", "--max-bytes", "1KiB", has=["4KiB"])
        self.refused(2, "bench", "comm", "--timeout", "1e18", has=["--timeout"])
        self.refused(2, "launch", "--nproc", "2", "true", has=["after a lone --"])

    def test_dry_run_starts_nothing(self):
        finished = orthant("bench", "comm", "--mesh", "pp=2,tp=4", "--dry-run")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertIn("8 ranks", finished.stdout)

    def test_ranks_given_by_flags_meet(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{probe.getsockname()[1]}"
        words = ["bench", "startup", "--world-size", "2", "--rendezvous", place, "--timeout", "20", "--json"]
        ranks = [subprocess.Popen([ORTHANT, *words, "--rank", str(r)], stdout=subprocess.PIPE, text=True, env=clean_environment())
                 for r in (0, 1)]
        results = [rank.communicate(timeout=40)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0])
        self.assertEqual(json.loads(results[0])["world_size"], 2)


class MeshOfAModel(unittest.TestCase):
    def test_a_rank_lists_its_own_stage(self):
        words = ("mesh", "--mesh", "pp=2,tp=2", "--model", os.path.join(SOURCE, "configs", "llama_tiny.json"), "--json")
        names = [{p["name"] for p in only_json(self, orthant(*words, "--rank", str(rank)))["parameters"]} for rank in (0, 2)]
        self.assertIn("embed.weight", names[0])
        self.assertIn("head.norm.weight", names[1] - names[0])
        self.assertEqual(names[0] & names[1], {"embed.weight"} & names[1], "a tied table alone is on both")


class ParityHints(unittest.TestCase):
    def test_the_axis_of_a_missing_sum_is_named_once(self):
        done = orthant("parity", "--config", os.path.join(SOURCE, "configs", "llama_tiny.json"), "--mesh", "fsdp=4", "--inject",
                       "skip-reduce=fsdp", "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(result["first_difference"], "embed.weight")
        self.assertIn("perhaps a sum over fsdp is missing", result["likely_cause"])
        self.assertEqual(done.stderr, "", "the answer is no failure of a rank")


if __name__ == "__main__":
    unittest.main()
