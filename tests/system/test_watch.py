"""orthant watch RUN and train --watch, --metrics-port: a run that goes on as page, text and numbers, without the run feeling it."""
import base64
import contextlib
import http.client
import json
import math
import os
import pty
import re
import signal
import socket
import subprocess
import time

from live_browser import LiveBrowser
from program import ORTHANT, FolderTest, children, clean_environment, free_port, is_alive, orthant, sockets_of, wait_until

CONFIG = {"name": "small", "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 256}, "train": {"global_batch_size": 8, "steps": 100000},
          "checkpoint": {"save_every": 0}}


def listener(port):
    """The process that listens at this port of loopback."""
    with open("/proc/net/tcp") as file:
        lines = [line.split() for line in file.readlines()[1:]]
    inodes = {words[9] for words in lines if words[3] == "0A" and words[1].endswith(f":{port:04X}")}
    return next(int(pid) for pid in os.listdir("/proc") if pid.isdigit() and inodes & sockets_of([pid]))


class WatchTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.path("run")
        with open(self.path("config.json"), "w") as file:
            json.dump(CONFIG, file)

    def start(self, *words):
        process = subprocess.Popen([ORTHANT, *map(str, words)], cwd=self.folder, env=clean_environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def train(self, *words):
        return self.start("train", "--config", "config.json", "--output-dir", self.run_folder, *words)

    def trained(self, *words):
        done = orthant("train", "--config", self.path("config.json"), "--output-dir", self.run_folder, "--set", "train.steps=6", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def address_in(self, stream):
        """Reads lines up to the one with the address; answers the port."""
        for line in stream:
            found = re.search(r"at http://127\.0\.0\.1:(\d+)/", line)
            if found:
                return int(found.group(1))
        self.fail("no address was told")

    def ask(self, port, path="/", **headers):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def numbers(self, port):
        """Prometheus' numbers; empty once nobody listens."""
        try:
            status, text = self.ask(port, "/metrics")
        except OSError:
            return {}
        self.assertEqual(status, 200)
        return {name: float(value) for name, value in (line.split() for line in text.splitlines() if not line.startswith("#"))}


class Command(WatchTest):
    def test_a_page_until_it_is_stopped(self):
        self.trained()
        watch = self.start("watch", self.run_folder, "--port", 0)
        port = self.address_in(watch.stdout)
        status, page = self.ask(port)
        self.assertEqual(status, 200)
        self.assertIn("orthant report: run: 6 steps", page)
        self.assertEqual(self.ask(port, Host="evil.example")[0], 403)
        self.assertEqual(self.numbers(port)["orthant_train_step"], 6)
        watch.send_signal(signal.SIGTERM)
        self.assertEqual(watch.wait(20), 0)

    def test_a_key(self):
        self.trained()
        key = self.path("keys")
        with open(key, "w") as file:
            file.write("0123456789abcdef\n")
        os.chmod(key, 0o600)
        port = self.address_in(self.start("watch", self.run_folder, "--port", 0, "--api-key-file", key).stdout)
        self.assertEqual(self.ask(port)[0], 401)
        word = base64.b64encode(b"me:0123456789abcdef").decode()
        self.assertEqual(self.ask(port, Authorization=f"Basic {word}")[0], 200)

    def test_text_of_a_run_that_goes_on(self):
        train = self.train()
        wait_until(lambda: os.path.exists(os.path.join(self.run_folder, "metrics.jsonl")), 60)
        watch = self.start("watch", self.run_folder, "--text")
        steps = (int(found.group(1)) for line in watch.stdout if (found := re.match(r"step (\d+), loss [\d.]+, a step \(median\) ", line)))
        self.assertLess(next(steps), next(steps))
        train.send_signal(signal.SIGTERM)
        rest = watch.communicate(timeout=60)[0]
        self.assertEqual(watch.returncode, 0)
        self.assertIn("the run has ended\n1. ", rest)

    def test_text_on_a_terminal(self):
        self.trained()
        ours, theirs = pty.openpty()
        watch = subprocess.Popen([ORTHANT, "watch", self.run_folder, "--text"], stdin=subprocess.DEVNULL, stdout=theirs, env=clean_environment())
        os.close(theirs)
        drawn = b""
        try:
            while part := os.read(ours, 65536):
                drawn += part
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        self.assertEqual(watch.wait(20), 0)
        self.assertIn(b"\x1b[H", drawn)
        self.assertIn(b"run: 6 steps", drawn)

    def test_text_that_nobody_reads_any_more(self):
        self.trained()
        unread, written = os.pipe()
        os.close(unread)
        watch = subprocess.run([ORTHANT, "watch", self.run_folder, "--text"], stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.PIPE,
                               env=clean_environment(), timeout=60)
        os.close(written)
        self.assertEqual((watch.returncode, watch.stderr), (-signal.SIGPIPE, b""))

    def test_refusals(self):
        self.trained()
        os.mkdir(self.path("empty"))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for words, message in (((self.folder + "/nothing",), "is no folder of a run"), ((self.path("empty"),), "holds nothing of a run"),
                                   ((self.run_folder, "--host", "0.0.0.0"), "--host 0.0.0.0 without --api-key-file: whoever reaches this address could read the run"),
                                   ((self.run_folder, "--text", "--port", "1"), "--text beside --port: text goes to this terminal"),
                                   ((self.run_folder, "--port", port), f"port {port} on 127.0.0.1 is in use"), ((self.run_folder, "--port", "-1"), "--port")):
                done = orthant("watch", *words)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(message, done.stderr)


class Train(WatchTest):
    def test_numbers_of_a_run_that_goes_on_and_its_end(self):
        train = self.train("--mesh", "dp=2", "--metrics-port", 0)
        port = self.address_in(train.stderr)
        self.assertTrue(wait_until(lambda: self.numbers(port).get("orthant_train_step", 0) > 2, 60))
        numbers = self.numbers(port)
        self.assertEqual(numbers["orthant_train_running"], 1)
        for name in ("loss", "lr", "grad_norm", "step_seconds", "tokens_per_second", "peak_memory_bytes"):
            self.assertGreater(numbers["orthant_train_" + name], 0, name)
        for name in ("restarts_total", "bad_steps_total"):
            self.assertEqual(numbers["orthant_train_" + name], 0, name)
        self.assertIn("Where the step goes", self.ask(port)[1])
        ranks = children(train.pid)
        self.assertEqual(len(ranks), 2)  # a launcher's only children
        train.send_signal(signal.SIGTERM)
        train.wait(60)
        self.assertTrue(wait_until(lambda: not self.numbers(port), 30), "the page is served behind the run's end")

    def test_the_page_outlives_an_attempt_and_ends_with_a_killed_job(self):
        train = self.train("--mesh", "dp=2", "--watch", "--metrics-port", 0, "--max-restarts", 1, "--set", "checkpoint.save_every=5")
        port = self.address_in(train.stderr)
        self.assertTrue(wait_until(lambda: self.numbers(port).get("orthant_train_checkpoints", 0) > 0, 60))
        os.kill(children(train.pid)[1], signal.SIGKILL)
        self.assertTrue(wait_until(lambda: self.numbers(port).get("orthant_train_restarts_total") == 1, 60))
        ranks = children(train.pid)
        for pid in (train.pid, *ranks):
            os.kill(pid, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not self.numbers(port), 30), "the page is served behind the run's end")
        self.assertFalse(any(is_alive(pid) for pid in ranks))

    def test_the_run_does_not_need_it(self):
        """A reader takes nothing, then the process that serves is killed: the run trains to its end."""
        train = self.train("--watch", "--metrics-port", 0, "--steps", 40)
        port = self.address_in(train.stderr)
        with socket.create_connection(("127.0.0.1", port)) as reader:
            reader.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertIn(b"text/event-stream", reader.recv(4096))
            pid = listener(port)
            self.assertNotIn(pid, [train.pid, *children(train.pid)])
            os.kill(pid, signal.SIGKILL)
            self.assertEqual(train.wait(120), 0)
        with open(os.path.join(self.run_folder, "metrics.jsonl")) as lines:
            self.assertEqual(len(lines.readlines()), 40)

    def test_rank_0_serves_it_under_a_launcher(self):
        done = orthant("launch", "--nproc", 2, "--", ORTHANT, "train", "--config", self.path("config.json"), "--mesh", "dp=2", "--steps", 3,
                       "--output-dir", self.run_folder, "--metrics-port", 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"\[rank 0\] orthant: watch the run at http://127\.0\.0\.1:\d+/, ", done.stderr)), 1)
        self.assertEqual(done.stderr.count("watch the run at"), 1)

    def test_refused_before_it_starts(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for words, message in ((("--metrics-port", port), f"port {port} on 127.0.0.1 is in use"),
                                   (("--watch", "--watch-host", "0.0.0.0"), "--watch-host 0.0.0.0 without --watch-key-file"),
                                   (("--watch-host", "127.0.0.1"), "--watch-host without --watch or --metrics-port: nothing is served"),
                                   (("--watch", "--watch-key-file", ""), "--watch-key-file is empty")):
                done = orthant("train", "--config", self.path("config.json"), "--output-dir", self.run_folder, *words)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(message, done.stderr)
        done = orthant("train", "--config", self.path("config.json"), "--watch", env=clean_environment(RANK=0, WORLD_SIZE=1, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1,
                                                                                                       MASTER_ADDR="127.0.0.1", MASTER_PORT=1))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--watch or --metrics-port under a launcher without --output-dir", done.stderr)


class Drawn(WatchTest):
    """Needs a browser. The page follows the run, what its reader does stays, and nothing is complained about."""

    def lines(self, first, last):
        with open(os.path.join(self.run_folder, "metrics.jsonl"), "a") as file:
            file.writelines(json.dumps({"step": step, "loss": 1 / step, "lr": 1e-3}, separators=(",", ":")) + "\n" for step in range(first, last + 1))

    def watched(self):
        os.mkdir(self.run_folder)
        with open(os.path.join(self.run_folder, "config.json"), "w") as file:
            file.write("{}")
        self.lines(1, 100)
        self.watch = self.start("watch", self.run_folder, "--port", free_port())
        self.port = self.address_in(self.watch.stdout)
        browser = LiveBrowser()
        self.addCleanup(browser.close)
        browser.open(f"http://127.0.0.1:{self.port}/")
        browser.until("document.getElementById('live').textContent === 'live'")
        return browser

    def test_the_keyboard_reads_a_curve_while_it_grows(self):
        browser = self.watched()
        for _ in range(50):  # by the tabulator alone
            browser.press("Tab")
            if browser.value("document.activeElement.id") == "curve-loss":
                break
        read = "document.getElementById('curve-loss-readout').textContent"
        self.assertEqual(browser.value(read), "step 100: run 0.01")
        self.lines(101, 200)
        browser.until(f"{read} === 'step 200: run 0.005'")  # who reads the end goes with it
        for key in ("Home", "ArrowRight", "ArrowRight", "ArrowRight"):
            browser.press(key)
        self.assertEqual(browser.value(read), "step 4: run 0.25")
        self.lines(201, 300)
        browser.until("document.title === 'orthant report: run: 300 steps'")
        self.assertEqual(browser.value(read), "step 4: run 0.25")
        self.assertEqual(browser.value("document.activeElement.id"), "curve-loss")
        browser.press("ArrowRight")
        self.assertEqual(browser.value(read), "step 5: run 0.2")
        self.assertEqual(browser.problems(), [])

    def test_the_page_says_when_it_stands_still_and_goes_on_with_another_server(self):
        browser = self.watched()
        self.watch.send_signal(signal.SIGTERM)
        self.assertEqual(self.watch.wait(20), 0)
        browser.until("document.getElementById('live').textContent.startsWith('not connected')")
        self.lines(101, 120)
        again = self.start("watch", self.run_folder, "--port", self.port)
        self.address_in(again.stdout)
        browser.until("document.title === 'orthant report: run: 120 steps' && document.getElementById('live').textContent === 'live'")


class Campaign(WatchTest):
    """Not in make test: python test_watch.py Campaign"""

    def test_a_million_lines(self):
        os.mkdir(self.run_folder)
        line = ('{"step":%d,"epoch":0,"loss":%.6f,"grad_norm":%.6f,"lr":0.001,"samples":16,"tokens":1024,"step_seconds":%.6f,'
                '"samples_per_second":320.0,"tokens_per_second":20480.0,"peak_memory_bytes":123456,"model_flops_per_second":%.1f}\n')
        with open(os.path.join(self.run_folder, "metrics.jsonl"), "w") as file:
            file.writelines(line % (i, 2 + math.sin(i * 1e-5), 1 + i % 7, 0.05 + i % 11 * 1e-4, 1e12 + i) for i in range(1, 1_000_001))
        with open(os.path.join(self.run_folder, "config.json"), "w") as file:
            file.write("{}")
        seconds = []
        for _ in range(5):
            begin = time.monotonic()
            watch = self.start("watch", self.run_folder, "--port", 0)
            port = self.address_in(watch.stdout)
            served = time.monotonic() - begin
            browser = LiveBrowser()
            opened = time.monotonic()
            browser.open(f"http://127.0.0.1:{port}/")
            browser.value("document.getElementById('curve-loss').focus()")
            browser.until("document.getElementById('curve-loss-readout').textContent.startsWith('step 1000000: ')")
            seconds.append((served + time.monotonic() - opened, served))
            browser.close()
            self.end(watch)
        print("\n".join(f"{total:.2f} s to a curve that is read, {served:.2f} of them to the server" for total, served in seconds))
        self.assertLess(sorted(seconds)[len(seconds) // 2][0], 3)


if __name__ == "__main__":
    import unittest
    unittest.main()
