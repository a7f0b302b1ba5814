"""Asks a running `orthant serve` all that many clients ask it, and what only bad ones do. Loopback only; needs some minutes.

  python3 -m venv /tmp/openai && /tmp/openai/bin/pip install openai
  .venv/bin/python tests/system/serve_campaign.py --openai /tmp/openai/bin/python

ORTHANT names the program (default: build/bin/orthant). The model is a Llama of 5 million random weights (--model: another folder, which brings a
tokenizer and a chat template). Parts, all of them unless --only names some:

openai: the client of OpenAI (the package openai of PyPI, of the interpreter --openai) asks for chats and completions, whole and in parts;
every answer is the one of `orthant generate`.

load: --clients at once ask --requests of mixed lengths, half of them in parts. None may be lost, each must be the answer of its prompt alone
(`orthant generate --max-batch 1`), but for tokens that tie in float32, which are counted; tokens per second against those of
`orthant generate` with all requests in one batch; resident memory of the server and its rank after a quarter of the requests and after all.

hostile: --hostile malformed requests and connections, some at once; each must get a status that fits, and the server must be the same afterwards.

kill: --kills times SIGKILL to a rank while clients ask; every running request must end with an error or a whole answer, and the service be back.
"""
import argparse
import collections
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import hostile_requests
from program import orthant, wait_until
from serving import CHAT, TEXT, Server, chat_prompt, generated, make_model

WORDS = "what may follow a word of a text is a word again".split()
LONGEST = 64  # tokens of an answer
INSTALL = "python3 -m venv /tmp/openai && /tmp/openai/bin/pip install openai"


def sentence(rng, most=120):
    return " ".join(rng.choice(WORDS) for _ in range(rng.choice((1, 4, rng.randint(1, most), most))))


def resident(pid):
    """Bytes that belong to the process: its own pages, without files that are mapped."""
    with open(f"/proc/{pid}/status") as file:
        return 1024 * int(next(line for line in file if line.startswith("RssAnon")).split()[1])


class Campaign:
    def __init__(self, given, folder):
        self.given, self.folder, self.failures = given, folder, []
        self.model = given.model or make_model(os.path.join(folder, "small"), hidden_size=256, intermediate_size=688, num_hidden_layers=6,
                                               num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=4096)

    def check(self, holds, what):
        if not holds:
            self.failures.append(what)

    def serve(self, *words):
        return Server(self.folder, self.model, "--log-level", "warning", *words)

    def openai(self):
        rng = random.Random(1)
        texts = [sentence(rng, 30) for _ in range(12)]
        talks = [[("system", "be brief"), ("user", text)] for text in texts]
        expected = [output["text"] for output in generated(self.model, self.folder, [*texts, *map(chat_prompt, talks)], "--seed", 7, "--max-tokens", 32)]
        questions = [{"kind": "text", "prompt": text, "max_tokens": 32, "seed": 7} for text in texts]
        questions += [{"kind": "chat", "messages": [{"role": role, "content": content} for role, content in talk], "max_completion_tokens": 32, "seed": 7}
                      for talk in talks]
        questions = [{**question, "stream": stream} for stream in (False, True) for question in questions]
        refused = [{"kind": "text", "prompt": "a", "temperature": -1}, {"kind": "chat", "messages": []}]
        server = self.serve()
        try:
            done = subprocess.run([self.given.openai, os.path.join(os.path.dirname(os.path.abspath(__file__)), "openai_client.py"), str(server.port),
                                   server.name], input=json.dumps(questions + refused), text=True, capture_output=True, timeout=600)
        finally:
            server.kill()
        self.check(done.returncode == 0, done.stderr)
        answers = json.loads(done.stdout or "[]")
        equal = sum(answer.get("texts") == [text] for answer, text in zip(answers, expected * 2))
        self.check(equal == len(questions), f"{len(questions) - equal} answers differ from generate's")
        self.check(all(answer["parts"] > 3 and answer["usage"]["completion_tokens"] == 32 for answer in answers[len(expected):-2]), "streams without parts")
        self.check([answer.get("status") for answer in answers[-2:]] == [400, 400], f"refusals: {answers[-2:]}")
        print(f"openai client: {equal} of {len(questions)} chats and completions, half of them streamed, equal to generate's; "
              f"2 refusals as {answers[-1].get('error')}", flush=True)

    def load(self):
        rng = random.Random(2)
        asked = [(sentence(rng), rng.choice((1, rng.randint(1, LONGEST), LONGEST))) for _ in range(self.given.requests)]
        expected = [output["text"] for output in self.alone(asked)]
        server = self.serve()
        answers, sizes = [None] * len(asked), []
        numbers, lock = itertools.count(), threading.Lock()

        def client():
            one = server.client(timeout=600)
            for number in iter(lambda: next(numbers), None):
                if number >= len(asked):
                    return
                prompt, most = asked[number]
                body = dict(prompt=prompt, max_tokens=most, temperature=0)
                try:
                    answers[number] = one.stream(TEXT, **body).texts()[0] if number % 2 else [
                        choice["text"] for choice in one.ask(TEXT, **body)[1]["choices"]]
                except Exception as error:
                    answers[number] = error
                if number in (len(asked) // 4, len(asked) - 1):
                    with lock:
                        sizes.append([resident(pid) for pid in (server.process.pid, *server.ranks())])

        batch = [self.batch_seconds(asked)]
        try:
            threads = [threading.Thread(target=client) for _ in range(self.given.clients)]
            began = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.monotonic() - began
            metrics = server.client().metrics()
        finally:
            server.kill()
        batch.append(self.batch_seconds(asked))
        lost = [answer for answer in answers if not isinstance(answer, list)]
        others = [one for one, answer, text in zip(asked, answers, expected) if isinstance(answer, list) and answer != [text]]
        ties = self.ties(others)
        wrong = len(others) - ties
        self.check(not lost, f"lost: {lost[:3]}")
        self.check(not wrong, f"{wrong} wrong answers")
        tokens, share = sum(most for _, most in asked), sum(batch) / 2 / seconds
        self.check(share >= 0.85, f"throughput {share:.2f} of generate's")
        self.check(metrics["orthant_generated_tokens_total"] == tokens, "tokens are counted otherwise")
        growth = [later / first - 1 for first, later in zip(*sizes)]
        self.check(max(growth) < 0.05, f"memory grew: {sizes}")
        print(f"load: {self.given.clients} clients, {len(asked)} requests, {tokens} tokens: {len(lost)} lost, {wrong} wrong, {ties} with another of "
              f"two tokens that tie; {tokens / seconds:.0f} tokens/s, "
              f"{share:.2f} of generate in one batch ({', '.join(f'{tokens / one:.0f}' for one in batch)} tokens/s); memory of server and rank "
              f"{' and '.join(f'{size / 2**20:.0f} MiB' for size in sizes[0])} after a quarter, {' and '.join(f'{100 * one:+.1f}%' for one in growth)} at the end",
              flush=True)

    def lines(self, asked):
        return [{"prompt": prompt, "max_tokens": most} for prompt, most in asked]

    def alone(self, asked, *words):
        return generated(self.model, self.folder, self.lines(asked), "--temperature", 0, "--max-batch", 1, *words)

    def ties(self, asked):
        """How many answers have a token whose lead over the next one is within the rounding of float32."""
        if not asked:
            return 0
        leads = [[token["most_probable"][0]["logprob"] - token["most_probable"][1]["logprob"] for token in output["logprobs"]]
                 for output in self.alone(asked, "--logprobs", 2)]
        return sum(min(of_tokens) < 1e-4 for of_tokens in leads)

    def batch_seconds(self, asked):
        """Without the start of the program."""
        path = os.path.join(self.folder, "asked.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in self.lines(asked))
        finished = orthant("generate", "--model", self.model, "--prompts", path, "--json", "--temperature", 0, timeout=3600)
        return json.loads(finished.stdout)["seconds"]

    def hostile(self):
        server = self.serve()
        rng, told, slow = random.Random(3), collections.Counter(), []
        kinds = [*hostile_requests.KINDS, "slow clients", "half-closed"]
        before = server.ranks()

        def one(kind, number):
            own = random.Random(f"{kind} {number}")
            if kind == "slow clients":
                good = hostile_requests.slow(server.port, own)
            elif kind == "half-closed":
                good = hostile_requests.half_closed(server.port, own)
            else:
                data, statuses = hostile_requests.KINDS[kind](own)
                status = hostile_requests.ask(server.port, data)
                good = status in statuses
                if not good:
                    self.failures.append(f"{kind} {number}: status {status}, not {statuses}: {data[:120]!r}")
            told[kind, good] += 1

        def some(numbers):
            for number in numbers:
                kind = kinds[number % len(kinds)]
                try:
                    one(kind, number)
                except Exception as error:
                    told[kind, False] += 1
                    self.failures.append(f"{kind} {number}: {error!r}")

        try:
            numbers = list(range(self.given.hostile))
            rng.shuffle(numbers)
            threads = [threading.Thread(target=some, args=(numbers[i::8],)) for i in range(8)]
            for thread in threads:
                thread.start()
            honest = [server.client().ask(TEXT, prompt="a word", max_tokens=8, temperature=0)[1]["choices"][0]["text"] for _ in range(20)]
            for thread in threads:
                thread.join()
            self.check(len(set(honest)) == 1, "honest clients got different answers meanwhile")
            self.check(server.process.poll() is None and server.ranks() == before, "the server or its rank ended")
            idle = wait_until(lambda: server.client().metrics()["orthant_cache_used_tokens"] == 0, 20)
            self.check(idle, "what clients left behind holds cache")
        finally:
            server.kill()
        good = sum(count for (_, fits), count in told.items() if fits)
        print(f"hostile: {good} of {self.given.hostile} requests ({', '.join(kinds)}) got a status that fits; server and rank are those of before",
              flush=True)

    def kill(self):
        server, seconds, ended = self.serve("--mesh", "tp=2"), [], collections.Counter()
        leaves = threading.Event()
        expected = generated(self.model, self.folder, ["a word"], "--temperature", 0, "--max-tokens", LONGEST)[0]["text"]

        def client():
            one = server.client(timeout=60)
            while not leaves.is_set():
                try:
                    status, answer = one.ask(TEXT, prompt="a word", max_tokens=LONGEST, temperature=0)
                    right = status == 200 and answer["choices"][0]["text"] == expected
                    ended["answered" if right else "told" if status == 503 else f"wrong: {status} {answer}"] += 1
                except Exception as error:
                    ended[f"lost: {error!r}"] += 1
                leaves.wait(0.05)

        threads = [threading.Thread(target=client) for _ in range(8)]
        try:
            for thread in threads:
                thread.start()
            rng = random.Random(4)
            for _ in range(self.given.kills):
                client_of_all = server.client()
                assert wait_until(lambda: client_of_all.metrics()["orthant_running"] > 4, 60)
                starts = client_of_all.metrics()["orthant_rank_starts_total"]
                os.kill(rng.choice(server.ranks()), signal.SIGKILL)
                began = time.monotonic()
                assert wait_until(lambda: client_of_all.metrics()["orthant_rank_starts_total"] > starts, 60)
                status = client_of_all.ask(TEXT, prompt="a word", max_tokens=1)[0]
                self.check(status == 200, f"after a kill: {status}")
                seconds.append(time.monotonic() - began)
        finally:
            leaves.set()
            for thread in threads:
                thread.join()
            server.kill()
        self.check(not [what for what in ended if what not in ("answered", "told")], f"{dict(ended)}")
        self.check(seconds and max(seconds) < 10, f"back after {seconds}")
        print(f"kill: {self.given.kills} ranks killed under load: {ended['answered']} requests answered, {ended['told']} told by status 503, "
              f"none lost or wrong; back after {sorted(seconds)[len(seconds) // 2]:.1f} s (median), {max(seconds):.1f} s at most", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--openai", default="/tmp/openai/bin/python", help="a Python that has the package openai")
    parser.add_argument("--model")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--hostile", type=int, default=500)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--only", default="openai,load,hostile,kill")
    given = parser.parse_args()
    parts = given.only.split(",")
    if "openai" in parts:
        try:
            found = subprocess.run([given.openai, "-c", "import openai"], capture_output=True).returncode == 0
        except OSError:
            found = False
        if not found:
            sys.exit(f"{given.openai} has no package openai. To install it: {INSTALL}")
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(given, folder)
        for part in parts:
            getattr(campaign, part)()
        for failure in campaign.failures[:20]:
            print("FAILED:", failure)
        return bool(campaign.failures)


if __name__ == "__main__":
    sys.exit(main())
