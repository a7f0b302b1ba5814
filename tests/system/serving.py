"""What tests of `orthant serve` share: a small model with a tokenizer and a chat template, a server that runs, and its clients."""
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess

import torch
import transformers

from program import ORTHANT, children, clean_environment, orthant, wait_until
from test_hugging_face import randomize

CHAT_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
POSITIONS = 1 << 16  # an answer may be longer than any test waits for
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def chat_prompt(messages):
    """What the template makes of the messages."""
    return "".join(f"{role}: {content}\n" for role, content in messages) + "assistant:"


def make_model(folder, seed=5, **sizes):
    """A small Llama with random weights that answers in letters of all kinds, and never with an end token."""
    import tokenizers
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(["what may follow a word of a text is a word again"] * 4, vocab_size=280, min_frequency=1)
    all_sizes = dict(vocab_size=280, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                     max_position_embeddings=POSITIONS, bos_token_id=None, eos_token_id=None)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**all_sizes, **sizes}))
    randomize(model, seed).to(torch.float32).save_pretrained(folder)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"chat_template": CHAT_TEMPLATE}, file)
    return folder


def generated(model, folder, prompts, *words):
    """The outputs of `orthant generate` for texts."""
    path = os.path.join(folder, "asked.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(prompt) + "\n" for prompt in prompts)
    finished = orthant("generate", "--model", model, "--prompts", path, "--json", *words, timeout=3600)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)["outputs"]


class Client:
    """Requests on one connection after the other."""

    def __init__(self, port, key=None, timeout=60):
        self.port, self.timeout = port, timeout
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def open(self, method, path, body=None, headers=None):
        """The connection and its response, whose body is still to be read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        content = json.dumps(body) if body is not None else None
        kind = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, content, {**self.headers, **kind, **(headers or {})})
        return connection, connection.getresponse()

    def ask(self, path, headers=None, **body):
        """Status and document."""
        connection, response = self.open("POST", path, body, headers)
        with contextlib.closing(connection):
            return response.status, json.loads(response.read())

    def get(self, path, headers=None):
        connection, response = self.open("GET", path, headers=headers)
        with contextlib.closing(connection):
            return response.status, response.read().decode()

    def stream(self, path, **body):
        return Stream(*self.open("POST", path, {"stream": True, **body}))

    def metrics(self):
        """Value by name, with its labels as they stand there."""
        lines = self.get("/metrics")[1].splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


class Stream:
    """Server-sent events of an answer."""

    def __init__(self, connection, response):
        self.connection, self.response = connection, response

    def __iter__(self):
        """Documents, up to [DONE] or an error."""
        for line in self.response:
            data = line.decode().strip()
            if data == "data: [DONE]":
                break
            if data:
                assert data.startswith("data: "), data
                yield json.loads(data[len("data: "):])
        self.close()

    def texts(self):
        """The text of every choice, and the last document."""
        texts, last = {}, None
        for last in self:
            for choice in last.get("choices", ()):
                part = choice["delta"].get("content", "") if "delta" in choice else choice["text"]
                texts[choice["index"]] = texts.get(choice["index"], "") + part
        return [texts[index] for index in sorted(texts)], last

    def close(self):
        """As a client that goes away."""
        self.response.close()
        self.connection.close()


class Server:
    """`orthant serve` on a port that the system picks. Its log is in a file of the folder."""

    def __init__(self, folder, model, *words):
        self.log = os.path.join(folder, "serve.log")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([ORTHANT, "serve", "--model", model, "--port", "0", *(str(word) for word in words)], stderr=log,
                                            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=clean_environment())
        self.said = self.process.stdout.readline()
        found = re.fullmatch(r"Serving (.*) at http://[^:]*:([0-9]+) \(Ctrl-C stops\)\n", self.said)
        if not found:
            self.kill()
            raise AssertionError(f"no server: {self.said!r} {self.errors()}")
        self.name, self.port = found[1], int(found[2])

    def errors(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def ranks(self):
        """Process numbers of the ranks; none while they are started."""
        launcher = children(self.process.pid)
        return children(launcher[0]) if launcher else []

    def client(self, **options):
        return Client(self.port, **options)

    def stop(self, seconds=60):
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended(seconds)

    def ended(self, seconds=60):
        with self.process.stdout:
            return self.process.wait(timeout=seconds)

    def kill(self):
        """Leaves nothing behind, whatever has happened."""
        ranks = self.ranks()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in ranks), 10)


@contextlib.contextmanager
def stopped(pids):
    """These processes do nothing for a while."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
