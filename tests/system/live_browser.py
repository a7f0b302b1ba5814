"""A headless browser that is asked through a pipe (DevTools protocol, messages that end in a zero byte): opens pages, presses keys, evaluates script."""
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class LiveBrowser:
    def __init__(self, width=1280, height=1000):
        self.folder = tempfile.mkdtemp()
        program = next(filter(None, map(shutil.which, BROWSERS)), None)
        if program is None:
            raise OSError(f"none of {', '.join(BROWSERS)} is installed")
        asks, self.out = os.pipe()
        self.answers, tells = os.pipe()

        def third_and_fourth():
            for fd, place in ((os.dup(asks), 3), (os.dup(tells), 4)):
                os.dup2(fd, place)

        self.process = subprocess.Popen([program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
                                         f"--user-data-dir={self.folder}", "about:blank"], preexec_fn=third_and_fourth, pass_fds=(3, 4),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(asks)
        os.close(tells)
        self.numbers, self.waiting, self.events = itertools.count(1), b"", []
        page = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        for domain in ("Runtime", "Log", "Page"):
            self.call(domain + ".enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.answers)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, **parameters):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if not method.startswith("Target."):
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.waiting:
                part = os.read(self.answers, 1 << 20)
                if not part:
                    raise OSError("the browser has ended")
                self.waiting += part
            text, self.waiting = self.waiting.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") != number:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise OSError(f"{method}: {answer['error']}")
            return answer["result"]

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def value(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script, seconds=60):
        deadline = time.monotonic() + seconds
        while not self.value(script):
            if time.monotonic() > deadline:
                raise AssertionError(f"{script} did not come true")
            time.sleep(0.02)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"Tab": 9}.get(key, 0))

    def problems(self):
        """What a page complains about on its console: errors, and what its policy blocks."""
        self.value("0")
        found = [one["params"] for one in self.events if one.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")]
        return [json.dumps(one) for one in found if one.get("entry", {}).get("level", "error") == "error"]
