"""Hosts made of network namespaces that a bridge joins, each with a cable of its own that can be pulled. Needs root."""
import subprocess

from program import ORTHANT, clean_environment


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

