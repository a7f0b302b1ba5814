"""Hosts made of network namespaces that a bridge joins, each with a cable of its own that can be pulled, and trainings on them. Needs root."""
import contextlib
import hashlib
import json
import os
import re
import secrets
import signal
import subprocess

from program import ORTHANT, children, clean_environment, is_alive, wait_until


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, capture_output=True)


class HostNetwork:
    """`number` hosts; used as a context. Names and addresses differ by `name`, so that several can be there at once."""

    def __init__(self, name, number, subnet):
        self.switch, self.hosts = f"{name}-switch", [f"{name}-{i}" for i in range(number)]
        self.cables = [f"{name}{i}" for i in range(number)]
        self.addresses = [f"10.213.{subnet}.{i + 1}" for i in range(number)]

    def __enter__(self):
        self.remove()
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for host, cable, address in zip(self.hosts, self.cables, self.addresses):
            ip("netns", "add", host)
            ip("link", "add", cable, "netns", host, "type", "veth", "peer", "name", cable, "netns", self.switch)
            ip("-n", self.switch, "link", "set", cable, "master", "bridge", "up")
            ip("-n", host, "addr", "add", f"{address}/24", "dev", cable)
            ip("-n", host, "link", "set", cable, "up")
            ip("-n", host, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        for namespace in (*self.hosts, self.switch):
            ip("netns", "del", namespace, check=False)

    def pull(self, host):
        """Cuts the host off; it keeps its address, and does not notice."""
        ip("-n", self.switch, "link", "set", self.cables[host], "down")

    def plug(self, host):
        ip("-n", self.switch, "link", "set", self.cables[host], "up")

    def launch(self, host, words, program, token, errors, cwd=None):
        """A launcher on that host in the background; stdout is a pipe."""
        command = ["ip", "netns", "exec", self.hosts[host], ORTHANT, "launch", *map(str, words), "--rendezvous", f"{self.addresses[0]}:29400", "--", *program]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, stdin=subprocess.DEVNULL, cwd=cwd,
                                env=clean_environment(ORTHANT_TOKEN=token))



class HostJob:
    """A training of several hosts in a folder that they share, with launchers that restart it. Launchers are known by their node, one that was
    put aside by another key."""

    def __init__(self, network, folder, nodes, launch_words, train_words, run="run"):
        self.network, self.folder, self.run = network, folder, run
        self.launch_words = ["--nproc", 2, "--nnodes", nodes, *launch_words]
        self.program = [ORTHANT, "train", "--config", "config.json", "--output_dir", run, "--json", *train_words]
        self.token, self.launchers, self.frozen = secrets.token_hex(32), {}, []

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def start(self, *nodes, host=None):
        """The launchers of these nodes, each on its host, or on another one."""
        for node in nodes:
            with open(self.path(f"errors-{self.run}-{node}"), "a") as errors:
                self.launchers[node] = self.network.launch(node if host is None else host, [*self.launch_words, "--node_rank", node], self.program,
                                                           self.token, errors, cwd=self.folder)

    def said(self, key):
        with open(self.path(f"errors-{self.run}-{key}")) as f:
            return f.read()

    def everything_said(self):
        return "\n".join(f"---- {key}:\n{self.said(key)}" for key in self.launchers)

    def lines(self):
        """Of metrics: a dictionary for each whole line."""
        try:
            with open(self.path(self.run, "metrics.jsonl")) as f:
                return [json.loads(line) for line in f.read().split("\n")[:-1]]
        except OSError:
            return []

    def steps(self):
        return [line["step"] for line in self.lines() if "step" in line]

    def step(self):
        return max(self.steps(), default=0)

    def newest_checkpoint(self):
        with contextlib.suppress(OSError):
            return max((int(name[5:]) for name in os.listdir(self.path(self.run, "checkpoints")) if re.fullmatch(r"step-\d+", name)), default=0)
        return 0

    def attempts_begun(self):
        """Restarts and regroupings that node 0 has announced."""
        return len(re.findall(r"^orthant: (?:starting all ranks again|hosts have come)", self.said(0), re.MULTILINE))

    def wait_for(self, condition, seconds=90):
        if wait_until(condition, seconds):
            return
        raise AssertionError(f"not within {seconds} s: step {self.step()}\n{self.everything_said()}")

    def ranks(self, node):
        return children(self.launchers[node].pid)

    def kill_rank(self, node, local_rank):
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(self.ranks(node)[local_rank], signal.SIGKILL)

    def kill_host(self, node):
        """Its launcher and, with it, its ranks."""
        ranks = self.ranks(node)
        self.launchers[node].kill()
        self.launchers[node].communicate()
        self.wait_for(lambda: not any(map(is_alive, ranks)), 20)

    def freeze(self, node):
        """Stops everything on the host; what was node `node` is known as "frozen" from then on."""
        self.frozen = [self.launchers[node].pid, *self.ranks(node)]
        for pid in self.frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        self.launchers["frozen"] = self.launchers.pop(node)
        os.rename(self.path(f"errors-{self.run}-{node}"), self.path(f"errors-{self.run}-frozen"))

    def thaw(self):
        """Lets it go on, and waits for its end."""
        for pid in self.frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.frozen = []
        self.launchers["frozen"].communicate(timeout=90)
        return self.launchers["frozen"].returncode

    def end(self, *nodes):
        """Waits for the end of these launchers, all of which must have ended well; the result that node 0 printed."""
        results = [self.launchers[node].communicate(timeout=180)[0] for node in nodes]
        if any(self.launchers[node].returncode != 0 for node in nodes):
            raise AssertionError(f"exit codes {[self.launchers[node].returncode for node in nodes]}\n{self.everything_said()}")
        return json.loads(results[nodes.index(0)])

    def close(self):
        for pid in self.frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        for process in self.launchers.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
            process.stdout.close()

    def files(self):
        """A hash of every file of the run by its path, but for the last events of ranks that another attempt has followed."""
        found = {}
        for place, _, names in os.walk(self.path(self.run)):
            for name in (os.path.join(place, name) for name in names if not name.endswith(".previous")):
                with open(name, "rb") as f:
                    found[os.path.relpath(name, self.path(self.run))] = hashlib.sha256(f.read()).hexdigest()
        return found
