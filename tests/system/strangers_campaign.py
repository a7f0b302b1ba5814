#!/usr/bin/env python3
"""Strangers at the ports of a job on two nodes: of another user on the same host, beside a job of root, and from another host.

Each trial is a training of two nodes, one kind of stranger and --count attempts: half of them while node 0 waits for node 1, half while the job
starts and trains. It must end with 0 and with the weights of an undisturbed one, say on stderr who was turned away and why in a few lines, keep
the launcher's memory flat and show the token nowhere. Needs root, for users and for network namespaces.

    python3 tests/system/strangers_campaign.py --count 20
"""
import argparse
import collections
import glob
import itertools
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import stranger
from program import ORTHANT, children, clean_environment, free_port, run, sockets_of, wait_until

JOB_USER, STRANGE_USER = 12001, 12002
NAMESPACES = {"a": "orthant-sa", "b": "orthant-sb", "c": "orthant-sc"}
ADDRESS_A, ADDRESS_B = "10.213.79.1", "10.213.79.2"
CONFIG = {"name": "strangers", "seed": 5,
          "model": {"kind": "llama", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 24,
                    "vocab_size": 31, "max_position_embeddings": 16},
          "data": {"kind": "tokens", "sequence_length": 8, "samples": 64}, "train": {"global_batch_size": 4, "steps": 300}}
NO_PROOF = "did not prove that it belongs to the job and was turned away: "
REASONS = {"no-token": NO_PROOF + "it has no token", "wrong-token": NO_PROOF + "its token is not the token of this job",
           "replayed": NO_PROOF + "its token is not the token of this job", "half-open": NO_PROOF + "it gave no answer to the challenge within 5 s",
           "garbage": NO_PROOF + "what it sent is no answer to the challenge", "flood": NO_PROOF + "(too many others were waiting|it left)",
           "slow": NO_PROOF + "it gave no answer to the challenge within 5 s",
           "impostor-first": "did not prove to be node 0 of this job: .*; trying again",
           "impostor-late": NO_PROOF + "its token is not the token of this job", "node-twice": NO_PROOF + "its token is not the token of this job",
           "store-commands": NO_PROOF + "what it sent is no answer to the challenge",
           "oversized": NO_PROOF + "(its token is not the token of this job|what it sent is no answer)"}
MOST_LINES = 16          # of the launcher about strangers, however many came
MOST_OF_NETWORKS = 66    # the same where they come from hundreds of networks: a line and a count for each address it tells apart
NETWORKS = 300
MOST_GROWTH = 256 << 10  # bytes of the launcher between the first and the second crowd
MOST_MEMORY = 2 << 20    # bytes of the launcher for all strangers together


class Place:
    """Where the nodes and the strangers of a trial are, and as whom they run."""

    def __init__(self, where):
        self.where = where
        self.address = ADDRESS_A if where == "hosts" else "127.0.0.1"
        self.job_user = JOB_USER if where == "user" else 0

    def command(self, host, user, words):
        words = [str(word) for word in words]
        if user:
            words = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", *words]
        return ["ip", "netns", "exec", NAMESPACES[host], *words] if self.where == "hosts" else words

    def free_port(self):
        if self.where == "hosts":
            return 29400
        return free_port(self.address)

    def __enter__(self):
        if self.where == "hosts":
            self.remove()
            for name in NAMESPACES.values():
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            self.cable("a", ADDRESS_A, "b", ADDRESS_B)
            self.cable("a", "10.213.80.1", "c", "10.213.80.2")
            ip("-n", NAMESPACES["c"], "route", "add", "default", "via", "10.213.80.1")
        return self

    def __exit__(self, *_):
        if self.where == "hosts":
            self.remove()

    @staticmethod
    def cable(first, first_address, second, second_address):
        ends = [f"os{first}{second}", f"os{second}{first}"]
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for host, end, address in zip((first, second), ends, (first_address, second_address)):
            ip("link", "set", end, "netns", NAMESPACES[host])
            ip("-n", NAMESPACES[host], "addr", "add", f"{address}/24", "dev", end)
            ip("-n", NAMESPACES[host], "link", "set", end, "up")

    @staticmethod
    def remove():
        for name in NAMESPACES.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Job:
    """A training on two nodes of one rank each; its launchers are children of this process."""

    def __init__(self, place, folder, token):
        self.place, self.folder, self.token = place, folder, token
        self.port = place.free_port()
        self.nodes, self.files = {}, {}
        self.output = os.path.join(folder, "out")
        os.chmod(folder, 0o755)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(CONFIG, f)
        self.token_file = os.path.join(folder, "job.token")
        with open(os.open(self.token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
            f.write(token + "\n")
        os.mkdir(self.output)
        for path in (self.token_file, self.output):
            os.chown(path, place.job_user, place.job_user)

    def words(self, node, port):
        return [ORTHANT, "launch", "--nproc", 1, "--nnodes", 2, "--node_rank", node, "--rendezvous", f"{self.place.address}:{port}", "--timeout", 60,
                *(["--token-file", self.token_file] if node == 1 else []), "--", ORTHANT, "train", "--config",
                os.path.join(self.folder, "config.json"), "--output_dir", os.path.join(self.output, "run"), "--mesh", "dp=2", "--json"]

    def start(self, node, port=None, name=None):
        """Node 0 has its token by the environment, node 1 by a file."""
        name = name or f"node-{node}"
        self.files[name] = os.path.join(self.folder, name)
        environment = clean_environment(**({"ORTHANT_TOKEN": self.token} if node == 0 else {}))
        command = self.place.command("ab"[node], self.place.job_user, self.words(node, port or self.port))
        with open(self.files[name] + ".out", "w") as out, open(self.files[name] + ".err", "w") as errors:
            self.nodes[name] = subprocess.Popen(command, stdout=out, stderr=errors, stdin=subprocess.DEVNULL, env=environment, cwd=self.folder)
        return self.nodes[name]

    def ports(self):
        """What node 0's launcher listens on, the rendezvous first."""
        pid = self.nodes["node-0"].pid
        held = sockets_of([pid])
        try:
            with open(f"/proc/{pid}/net/tcp") as f:
                rows = [line.split() for line in f.readlines()[1:]]
        except OSError:
            return []
        found = {int(row[1].rsplit(":", 1)[1], 16) for row in rows if row[3] == "0A" and row[9] in held}
        return [self.port, *sorted(found - {self.port})] if self.port in found else []

    def resident(self):
        with open(f"/proc/{self.nodes['node-0'].pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) << 10

    def text(self, name, kind):
        with open(f"{self.files[name]}.{kind}", errors="replace") as f:
            return f.read()

    def finish(self, timeout=90):
        for node in self.nodes.values():
            node.wait(timeout)

    def result(self):
        document = json.loads(self.text("node-0", "out"))
        return {key: document[key] for key in ("steps", "final_loss", "weights_hash")}

    def end(self):
        for node in self.nodes.values():
            if node.poll() is None:
                node.send_signal(signal.SIGKILL)
                node.wait()


class HeldRanks:
    """Stops the ranks of a job as soon as they train: looked for from the start on, since what else a trial does meanwhile may take longer than the training."""

    def __init__(self, job):
        self.job, self.ranks = job, []
        self.watch = threading.Thread(target=self.hold, daemon=True)
        self.watch.start()

    def hold(self):
        metrics = os.path.join(self.job.output, "run", "metrics.jsonl")
        if wait_until(lambda: os.path.exists(metrics), 30):
            self.ranks = [rank for node in self.job.nodes.values() for rank in children(node.pid)]
            for rank in self.ranks:
                os.kill(rank, signal.SIGSTOP)

    def wait(self):
        self.watch.join()
        return self.ranks

    def let_go(self):
        for rank in self.ranks:
            os.kill(rank, signal.SIGCONT)


class Relay:
    """Somebody on the wire who writes down what a member says first."""

    def __init__(self, target):
        self.target, self.said = target, b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        for turn in itertools.count():
            client, _ = self.listener.accept()
            server = socket.create_connection(self.target)
            for source, sink, record in ((server, client, False), (client, server, turn == 0)):
                threading.Thread(target=self.pump, args=(source, sink, record), daemon=True).start()

    def pump(self, source, sink, record):
        try:
            while data := source.recv(4096):
                self.said += data if record else b""
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Campaign:
    def __init__(self, folder, dumps):
        self.folder, self.dumps = folder, dumps
        self.token = secrets.token_hex(32)
        self.script = os.path.join(folder, "stranger.py")  # where another user can read it
        shutil.copy(stranger.__file__, self.script)
        self.recorded, self.expected = b"", None

    def new_job(self, place):
        return Job(place, tempfile.mkdtemp(prefix="job-", dir=self.folder), self.token)

    def undisturbed(self):
        """The result that every trial must have; somebody writes down what node 1 says when it joins."""
        job = self.new_job(Place("root"))
        try:
            job.start(0)
            assert wait_until(job.ports, 20), job.text("node-0", "err")
            relay = Relay(("127.0.0.1", job.port))
            job.start(1, relay.port)
            job.finish()
            self.recorded = relay.said[:stranger.HEAD + stranger.NONCE + stranger.PROOF]
            assert self.recorded.startswith(stranger.MAGIC), self.recorded
            self.expected = job.result()
        finally:
            job.end()

    def attack(self, job, kind, count, host="c", networks=0):
        """A stranger's process; it has begun when this returns."""
        ports = [job.port] if kind == "impostor-first" else job.ports()
        assert ports, f"node 0 listens nowhere: {job.text('node-0', 'err')}"
        host = "a" if kind.startswith("impostor") else host
        words = job.place.command(host, STRANGE_USER, ["/usr/bin/python3", self.script, kind, job.place.address, count, *ports])
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                   env={"PATH": os.environ["PATH"], "STRANGER_RECORDED": self.recorded.hex(),
                                                      "STRANGER_NETWORKS": str(networks)}, cwd="/")
        first = process.stdout.readline()
        assert first == "ready\n", (kind, first, process.stderr.read())
        return process

    @staticmethod
    def ends_of(process):
        out, errors = process.communicate(timeout=120)
        ends = out.split("\n")[:-1]
        return [end for end in ends if end not in ("ready", "closed")] + ([errors] if process.returncode else [])

    def trial(self, place, kinds, count, search):
        """What is wrong with a job that strangers of these kinds visited; empty when nothing is."""
        job = self.new_job(place)
        wrong = []
        waiting_kinds = [kind for kind in kinds if kind != "impostor-first"]
        early, late = (count + 1) // 2, count // 2 or 1
        networks = NETWORKS if kinds == ["flood"] and place.where != "hosts" else 0  # all of 127.0.0.0/8 is at home here
        try:
            if "impostor-first" in kinds:
                impostor = self.attack(job, "impostor-first", count)
                job.start(1)
                wrong += self.ends_of(impostor)
            job.start(0)
            if waiting_kinds:
                wrong += self.crowds(job, waiting_kinds, early, networks)
                job.start(1)
            held = HeldRanks(job)
            assert wait_until(job.ports, 20), job.text("node-0", "err")
            strangers = [self.attack(job, kind, late, networks=networks) for kind in waiting_kinds]
            wrong += self.look_while_it_trains(job, held, strangers, search, "node-twice" in kinds)
            job.finish()
            for process in strangers:  # what comes after the end of the job finds nobody
                process.send_signal(signal.SIGKILL) if process.poll() is None else None
                wrong += [end for end in process.communicate()[0].split("\n") if end in ("welcomed", "heard") or end.startswith("took")]
            wrong += self.judge(job, kinds, MOST_OF_NETWORKS if networks else MOST_LINES + 2 * len(kinds))
        finally:
            job.end()
        return wrong

    def crowds(self, job, kinds, count, networks):
        """Two crowds while node 0 waits for node 1: the second may not cost more memory than the first."""
        assert wait_until(job.ports, 20), job.text("node-0", "err")
        sizes, wrong = [job.resident()], []
        for part in (count - count // 2, count // 2):
            strangers = [self.attack(job, kind, part, networks=networks) for kind in kinds if part]
            for process in strangers:
                wrong += self.ends_of(process)
            sizes.append(job.resident())
        if sizes[2] - sizes[1] > MOST_GROWTH or sizes[2] - sizes[0] > MOST_MEMORY:
            wrong.append(f"the launcher's memory grew: {sizes} bytes")
        return wrong

    @staticmethod
    def same_node_again(job):
        """Another launcher of the job itself that says it is node 1: told so, and nobody else is disturbed."""
        again = job.start(1, name="node-1-again")
        again.wait(60)
        errors = job.text("node-1-again", "err")
        del job.nodes["node-1-again"]
        told = again.returncode == 2 and "there is already a node 1" in errors
        return [] if told else [f"a second node 1 ended with {again.returncode}: {errors}"]

    def judge(self, job, kinds, most_lines):
        wrong = [f"{name} ended with {node.returncode}" for name, node in job.nodes.items() if node.returncode != 0]
        said = [job.text(name, "err") for name in ("node-0", "node-1")]
        errors = "".join(said)
        if not wrong and job.result() != self.expected:
            wrong.append(f"{job.result()} instead of {self.expected}")
        for kind in kinds:
            if not re.search(REASONS[kind], errors):
                wrong.append(f"no line about {kind}")
        about = [line for line in errors.splitlines() if "turned away" in line or "did not prove" in line]
        if len(about) > most_lines:
            wrong.append(f"{len(about)} lines about strangers")
        for text in said:  # one line about each address and reason, and a count at the end
            times = collections.Counter(re.findall(r"connections? from (\S+) .*?turned away: (.*)|answers at (\S+) did not prove .*?: (.*)", text))
            wrong += [f"{times[whom]} lines about {whom}" for whom in times if times[whom] > 2]
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", errors):
            wrong.append("control characters on stderr")
        wrong += [f"the token is in {path}" for path in self.files_with_token(job)]
        return wrong + ([errors] if wrong else [])

    def holds_token(self, data):
        return self.token.encode() in data or self.token.upper().encode() in data or bytes.fromhex(self.token) in data

    def files_with_token(self, job):
        found = []
        for folder, _, names in os.walk(job.folder):
            for name in names:
                path = os.path.join(folder, name)
                if path != job.token_file and os.path.isfile(path):
                    with open(path, "rb") as f:
                        found += [path] if self.holds_token(f.read()) else []
        return found

    def look_while_it_trains(self, job, held, strangers, search, twice):
        """The ranks are held in the middle of the training meanwhile, so that it cannot end before every stranger has tried."""
        ranks = held.wait()
        if len(ranks) != 2:
            held.let_go()
            return [f"{len(ranks)} ranks while they train"]
        launchers = [node.pid for node in job.nodes.values()]
        before = job.resident()
        wrong = [f"a late stranger's first attempt ended so: {end}" for end in [process.stdout.readline() for process in strangers] if end != "closed\n"]
        if (grown := job.resident() - before) > MOST_MEMORY:
            wrong.append(f"the launcher's memory grew by {grown} bytes while it trained")
        wrong += self.search(job, launchers, ranks) if search else []
        wrong += self.same_node_again(job) if twice else []
        held.let_go()
        return wrong

    def search(self, job, launchers, ranks):
        """The token in arguments of anybody, in the environment of launchers and ranks, and in what a dump of theirs would hold."""
        wrong = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as f:
                    wrong += [f"the token is in {path}"] if self.holds_token(f.read()) else []
            except OSError:
                pass
        for pid in launchers + ranks:
            with open(f"/proc/{pid}/environ", "rb") as f:
                wrong += [f"the token is in the environment of process {pid}"] if self.holds_token(f.read()) else []
            wrong += [f"the token is in a dump of process {pid}"] if self.holds_token(dumped_memory(pid)) else []
        return wrong + self.search_core(job, launchers[0])

    def search_core(self, job, pid):
        if not self.dumps or not shutil.which("gcore"):
            return []
        core = os.path.join(job.folder, "core")
        run("gcore", "-o", core, pid, timeout=120)
        with open(f"{core}.{pid}", "rb") as f:
            found = self.holds_token(f.read())
        os.unlink(f"{core}.{pid}")
        return ["the token is in a core dump of the launcher"] if found else []


def dumped_memory(pid):
    """The private memory of a process that the kernel would write into a core dump."""
    data, mapping = [], None
    with open(f"/proc/{pid}/smaps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ (\S+) (\d+)", line):
                start, end = int(found.group(1), 16), int(found.group(2), 16)
                mapping = (start, end) if "w" in found.group(3) else None
            elif line.startswith("VmFlags:") and mapping and "dd" not in line.split():
                try:
                    memory.seek(mapping[0])
                    data.append(memory.read(mapping[1] - mapping[0]))
                except OSError:
                    pass
    return b"\0".join(data)


def trials_at(campaign, where, kinds, options):
    """Whether each trial at a place went well. An impostor in node 0's place needs a job of its own: nobody waits there."""
    first = [kind for kind in kinds if kind == "impostor-first"]
    groups = [group for group in (first, [kind for kind in kinds if kind not in first]) if group] if options.together else [[kind] for kind in kinds]
    results = []
    with Place(where) as place:
        for i, group in enumerate(groups):
            problems = campaign.trial(place, group, options.count, search=i == len(groups) - 1)
            results.append(not problems)
            said = "\n  ".join(["disturbed", *problems]) if problems else "undisturbed"
            print(f"{where} {','.join(group)}: {options.count} strangers, {said}", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20, help="attempts of each kind at each place")
    parser.add_argument("--kinds", default=",".join(stranger.KINDS))
    parser.add_argument("--where", default="user,root,hosts", help="user: another user's job on this host; root: a job of root; hosts: namespaces")
    parser.add_argument("--together", action="store_true", help="one job for all kinds instead of one for each")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    folder = tempfile.mkdtemp(prefix="orthant-strangers-")
    os.chmod(folder, 0o755)
    try:
        campaign = Campaign(folder, dumps=not options.together)  # gdb takes its time
        campaign.undisturbed()
        with ThreadPoolExecutor(3 if options.together else 1) as pool:
            results = list(pool.map(lambda where: trials_at(campaign, where, kinds, options), options.where.split(",")))
        wrong = [one for result in results for one in result].count(False)
        num = sum(map(len, results))
        print(f"{len(kinds)} kinds of strangers x {options.count} at {options.where}: {num} jobs, {wrong} disturbed")
    finally:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
