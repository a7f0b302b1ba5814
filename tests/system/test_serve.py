"""`orthant serve`: answers as `orthant generate` gives them, whole and in parts; who may ask; what happens to a full queue, to clients that go, to
ranks that die, to answers under way when the server is to end, and to a cache that is too small."""
import http.client
import json
import os
import shutil
import signal
import tempfile
import threading
import unittest

from program import FolderTest, children, is_alive, orthant, wait_until
from serving import CHAT, TEXT, Client, Server, chat_prompt, generated, make_model, stopped

PROMPTS = ("a word", "what may follow", "text", "of a text is a word, or two or three", "again")
GREEDY = {"temperature": 0}
ENDLESS = {"max_tokens": 60000}


def setUpModule():
    global FOLDER, MODEL
    FOLDER = tempfile.mkdtemp()
    MODEL = make_model(os.path.join(FOLDER, "tiny"))


def tearDownModule():
    shutil.rmtree(FOLDER)


class Served(FolderTest):
    def serve(self, *words):
        server = Server(self.folder, MODEL, *words)
        self.addCleanup(server.kill)
        return server

    def texts(self, prompts, *words):
        return [output["text"] for output in generated(MODEL, self.folder, prompts, *words)]

    def error(self, answer, status):
        self.assertEqual(answer[0], status, answer)
        return answer[1]["error"]["message"]


class Answers(Served):
    """All over one server of two ranks."""

    def setUp(self):
        super().setUp()
        self.server = self.serve("--mesh", "tp=2")
        self.client = self.server.client()

    def test_answers_are_those_of_generate(self):
        for check in (self.whole_answers, self.answers_in_parts, self.chats, self.several_answers, self.stop_texts, self.log_probabilities,
                      self.documents_of_a_server, self.requests_that_cannot_be):
            with self.subTest(check.__name__):
                check()

    def whole_answers(self):
        expected = self.texts(PROMPTS, "--temperature", 0, "--max-tokens", 24)
        for prompt, text in zip(PROMPTS, expected):
            status, answer = self.client.ask(TEXT, prompt=prompt, max_tokens=24, **GREEDY)
            self.assertEqual((status, answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]), (200, text, "length"))
            self.assertEqual(answer["usage"]["completion_tokens"], 24)
            self.assertEqual(answer["usage"]["total_tokens"], 24 + answer["usage"]["prompt_tokens"])
        together = self.client.ask(TEXT, prompt=list(PROMPTS), max_tokens=24, **GREEDY)[1]
        self.assertEqual([choice["text"] for choice in together["choices"]], expected)

    def answers_in_parts(self):
        sampled = dict(max_tokens=40, temperature=0.8, top_p=0.9, top_k=50, repetition_penalty=1.1)
        words = ("--max-tokens", 40, "--temperature", 0.8, "--top-p", 0.9, "--top-k", 50, "--repetition-penalty", 1.1, "--seed", 11)
        expected = self.texts(PROMPTS, *words)
        streams = [self.client.stream(TEXT, prompt=prompt, seed=11, stream_options={"include_usage": True}, **sampled) for prompt in PROMPTS]
        for stream, text in zip(streams, expected):
            texts, last = stream.texts()
            self.assertEqual(texts, [text])
            self.assertEqual((last["choices"], last["usage"]["completion_tokens"]), ([], 40))
        # Without a seed each request has one of its own.
        drawn = {self.client.ask(TEXT, prompt="a word", **sampled)[1]["choices"][0]["text"] for _ in range(3)}
        self.assertEqual(len(drawn), 3)

    def chats(self):
        talk = [("system", "be short"), ("user", "a word?")]
        messages = [{"role": role, "content": content} for role, content in talk]
        text = self.texts([chat_prompt(talk)], "--temperature", 0, "--max-tokens", 12)[0]
        asked = dict(messages=messages, max_completion_tokens=12, **GREEDY)
        answer = self.client.ask(CHAT, **asked)[1]
        self.assertEqual(answer["choices"][0]["message"], {"role": "assistant", "content": text, "refusal": None})
        stream = list(self.client.stream(CHAT, **asked))
        self.assertEqual(stream[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual("".join(event["choices"][0]["delta"].get("content", "") for event in stream), text)
        self.assertEqual([event["choices"][0]["finish_reason"] for event in stream][-2:], [None, "length"])

    def several_answers(self):
        expected = self.texts(["a word"], "--seed", 3, "--n", 3, "--max-tokens", 10)
        answer = self.client.ask(TEXT, prompt="a word", seed=3, n=3, max_tokens=10)[1]
        self.assertEqual([choice["text"] for choice in answer["choices"]], expected)
        self.assertEqual(answer["usage"]["completion_tokens"], 30)
        self.assertEqual(self.client.stream(TEXT, prompt="a word", seed=3, n=3, max_tokens=10).texts()[0], expected)

    def stop_texts(self):
        whole = self.texts(["text"], "--temperature", 0, "--max-tokens", 30)[0]
        stop = whole[len(whole) // 2:len(whole) // 2 + 2]
        asked = dict(prompt="text", max_tokens=30, stop=[stop, "never said"], **GREEDY)
        choice = self.client.ask(TEXT, **asked)[1]["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"]), (whole[:whole.index(stop)], "stop"))
        texts, last = self.client.stream(TEXT, **asked).texts()
        self.assertEqual((texts, last["choices"][0]["finish_reason"]), ([whole[:whole.index(stop)]], "stop"))

    def log_probabilities(self):
        output = generated(MODEL, self.folder, ["text"], "--temperature", 0, "--max-tokens", 4, "--logprobs", 3)[0]
        told = self.client.ask(TEXT, prompt="text", max_tokens=4, logprobs=3, **GREEDY)[1]["choices"][0]["logprobs"]
        for i, token in enumerate(output["logprobs"]):
            self.assertAlmostEqual(told["token_logprobs"][i], token["logprob"], places=4)
            self.assertAlmostEqual(max(told["top_logprobs"][i].values()), token["most_probable"][0]["logprob"], places=4)
        events = self.client.stream(TEXT, prompt="text", max_tokens=4, logprobs=0, **GREEDY)
        parts = [event["choices"][0]["logprobs"] for event in events]
        found = [logprob for part in parts if part for logprob in part["token_logprobs"]]
        self.assertEqual([round(one, 4) for one in found], [round(one, 4) for one in told["token_logprobs"]])

    def documents_of_a_server(self):
        status, models = self.client.get("/v1/models")
        model = json.loads(models)["data"][0]
        self.assertEqual((status, model["id"], model["object"]), (200, "tiny", "model"))
        self.assertEqual(self.client.get("/health"), (200, '{"status":"ok"}'))
        status, page = self.client.get("/")
        self.assertEqual((status, "<!doctype html>" in page), (200, True))
        self.assertTrue(wait_until(lambda: self.client.metrics()["orthant_running"] == 0, 10))
        metrics = self.client.metrics()
        self.assertEqual(metrics["orthant_rank_starts_total"], 1)
        self.assertEqual(metrics['orthant_requests_total{route="/health",status="200"}'], 1)
        self.assertGreater(metrics["orthant_generated_tokens_total"], 0)

    def requests_that_cannot_be(self):
        self.assertIn("use 'tiny'", self.error(self.client.ask(TEXT, model="other", prompt="a"), 404))
        self.assertIn("the model takes at most", self.error(self.client.ask(TEXT, prompt="a " * 300000), 400))
        self.assertIn("temperature", self.error(self.client.ask(TEXT, prompt="a", temperature=-1), 400))
        self.assertIn("at least one message", self.error(self.client.ask(CHAT, messages=[]), 400))
        self.assertIn("there is no /v2", self.error(self.client.ask("/v2", prompt="a"), 404))


class Access(Served):
    def test_keys_and_addresses(self):
        keys = self.path("keys")
        key = "k" * 24
        with open(keys, "w", encoding="utf-8") as file:
            file.write(key + "\n")
        os.chmod(keys, 0o600)
        server = self.serve("--api-key-file", keys, "--served-name", "mine")
        self.assertEqual(server.name, "mine")
        for wrong in (None, key[:-1], key + "k"):
            client = server.client(key=wrong)
            self.assertIn("API key", self.error(client.ask(TEXT, prompt="a"), 401))
            self.assertEqual(client.get("/metrics")[0], 401)
            self.assertEqual(client.get("/health")[0], 200)
        right = server.client(key=key)
        self.assertEqual(right.ask(TEXT, prompt="a", max_tokens=1)[0], 200)
        self.assertIn("names another machine", right.get("/v1/models", {"Host": "attacker.example"})[1])
        self.assertEqual(server.stop(), 0, server.errors())

    def test_what_is_refused_before_it_starts(self):
        keys = self.path("keys")
        with open(keys, "w", encoding="utf-8") as file:
            file.write("k" * 24)
        os.chmod(keys, 0o644)
        for words, reason in ((("--host", "0.0.0.0"), "--host 0.0.0.0 without --api-key-file: whoever reaches this address could use the model"),
                              (("--api-key-file", keys), "others can read it"), (("--max-queue", 0), "--max-queue"),
                              (("--mesh", "cp=2"), "a generation has no cp axis"), (("--chat-template", "none"), "use chatml, llama3"),
                              (("--dry-run",), "has nothing to show"), (("--mesh", "tp=3"), "tp")):
            finished = orthant("serve", "--model", MODEL, *words)
            self.assertEqual((finished.returncode, finished.stdout), (2, ""), words)
            self.assertIn(reason, finished.stderr)


class Loads(Served):
    def test_a_full_queue_is_told_and_a_small_cache_loses_nothing(self):
        server = self.serve("--max-queue", 2, "--cache-tokens", 160)
        client = server.client()
        answers = {}

        def ask(number):
            answers[number] = client.ask(TEXT, prompt=PROMPTS[number], max_tokens=5, **GREEDY)

        waiting = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
        with stopped(server.ranks()):
            for thread in waiting:
                thread.start()
            self.assertTrue(wait_until(lambda: client.metrics()["orthant_answers_waiting"] == 2, 20))
            self.assertIn("at most 2 may: try again later", self.error(client.ask(TEXT, prompt="a"), 429))
        for thread in waiting:
            thread.join()
        self.assertEqual([answers[number][1]["choices"][0]["text"] for number in range(2)],
                         self.texts(PROMPTS[:2], "--temperature", 0, "--max-tokens", 5))
        server.kill()
        prompts = [f"{prompt} {number}" for prompt in PROMPTS for number in range(2)]
        server = self.serve("--cache-tokens", 160)
        client = server.client()
        found = client.ask(TEXT, prompt=prompts, max_tokens=60, **GREEDY)[1]["choices"]
        self.assertEqual([choice["text"] for choice in found], self.texts(prompts, "--temperature", 0, "--max-tokens", 60))
        self.assertTrue(wait_until(lambda: client.metrics()["orthant_preempted_total"] > 0, 20))
        metrics = client.metrics()
        self.assertEqual((metrics["orthant_cache_tokens"], metrics["orthant_cache_used_tokens"]), (160, 0))

    def test_whoever_goes_frees_the_cache(self):
        server = self.serve()
        client = server.client()
        stream = client.stream(TEXT, prompt="a word", **ENDLESS)
        next(iter(stream))
        self.assertTrue(wait_until(lambda: client.metrics()["orthant_cache_used_tokens"] > 0, 20))
        stream.close()
        self.assertTrue(wait_until(lambda: client.metrics()["orthant_cache_used_tokens"] == 0, 20))
        metrics = client.metrics()
        self.assertEqual(metrics['orthant_answers_total{reason="cancelled"}'], 1)
        self.assertLess(metrics["orthant_generated_tokens_total"], ENDLESS["max_tokens"])


class Ends(Served):
    def test_a_lost_rank_ends_its_answers_and_comes_back(self):
        server = self.serve("--mesh", "pp=2")
        client = server.client()
        before = client.ask(TEXT, prompt="a word", max_tokens=8, **GREEDY)[1]["choices"][0]["text"]
        stream = client.stream(TEXT, prompt="a word", **ENDLESS)
        next(iter(stream))
        whole = {}
        thread = threading.Thread(target=lambda: whole.update(zip(("status", "answer"), client.ask(TEXT, prompt="text", **ENDLESS))))
        thread.start()
        self.assertTrue(wait_until(lambda: client.metrics()["orthant_running"] == 2, 20))
        lost = server.ranks()
        os.kill(lost[1], signal.SIGKILL)
        self.assertIn("a rank was lost while this answer was made", stream.texts()[1]["error"]["message"])
        thread.join()
        self.assertEqual((whole["status"], whole["answer"]["error"]["type"]), (503, "server_error"))
        self.assertTrue(wait_until(lambda: client.get("/health")[0] == 200, 30), server.errors())
        self.assertEqual(client.ask(TEXT, prompt="a word", max_tokens=8, **GREEDY)[1]["choices"][0]["text"], before)
        self.assertFalse(set(lost) & set(server.ranks()))
        self.assertEqual(client.metrics()["orthant_rank_starts_total"], 2)
        self.assertIn("killed by SIGKILL", server.errors())
        everybody = [server.process.pid, *children(server.process.pid), *server.ranks()]
        self.assertEqual(server.stop(), 0, server.errors())
        self.assertTrue(wait_until(lambda: not any(is_alive(pid) for pid in everybody), 10))

    def test_sigterm_lets_answers_come_to_their_end(self):
        server = self.serve()
        client = server.client()
        found = []
        with stopped(server.ranks()):
            thread = threading.Thread(target=lambda: found.append(client.ask(TEXT, prompt="a word", max_tokens=8, **GREEDY)))
            thread.start()
            self.assertTrue(wait_until(lambda: client.metrics()["orthant_answers_waiting"] == 1, 20))
            server.process.send_signal(signal.SIGTERM)
            self.assertTrue(wait_until(lambda: "stopping: 1 requests are answered first" in server.errors(), 20))
            self.assertRaises(ConnectionRefusedError, client.get, "/health")
        thread.join()
        self.assertEqual(found[0][1]["choices"][0]["text"], self.texts(["a word"], "--temperature", 0, "--max-tokens", 8)[0])
        self.assertEqual(server.ended(), 0, server.errors())

    def test_ranks_end_with_a_server_that_is_killed(self):
        server = self.serve()
        everybody = [*children(server.process.pid), *server.ranks()]
        server.process.kill()
        self.assertTrue(wait_until(lambda: not any(is_alive(pid) for pid in everybody), 20))
        self.assertNotIn("starting all ranks again", server.errors())

    def test_a_second_sigterm_does_not_wait(self):
        server = self.serve()
        stream = server.client().stream(TEXT, prompt="a word", **ENDLESS)
        next(iter(stream))
        server.process.send_signal(signal.SIGTERM)
        self.assertTrue(wait_until(lambda: "stopping: 1 requests" in server.errors(), 20))
        server.process.send_signal(signal.SIGTERM)
        self.assertIn("the server is stopping", stream.texts()[1]["error"]["message"])
        self.assertEqual(server.ended(), 75, server.errors())


if __name__ == "__main__":
    unittest.main()
