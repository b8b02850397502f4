"""Headless Chromium, over its DevTools protocol."""

import base64
import contextlib
import itertools
import json
import re
import shutil
import subprocess
import tempfile
import time

from websockets.sync.client import connect

from harness.guards import GUARD_SECONDS

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"


class Browser:
    """One process; `with Browser() as browser: page = browser.page(url)`."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="sszip-chromium-", ignore_cleanup_errors=True)
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        own = [f"--user-data-dir={self.folder.name}", "--remote-debugging-port=0", "about:blank"]
        self.process = subprocess.Popen(
            [CHROMIUM, *options, *own], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        for line in self.process.stderr:
            if found := re.search(r"DevTools listening on (ws://\S+)", line):
                break
        else:
            raise RuntimeError("chromium has not said where it listens")
        self.ends = contextlib.ExitStack()
        self.socket = self.ends.enter_context(connect(found[1], max_size=None, open_timeout=30))
        self.numbers = itertools.count(1)
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ends.close()
        self.process.terminate()
        self.process.wait(GUARD_SECONDS)
        self.process.stderr.close()
        self.folder.cleanup()

    def send_command(self, method, session=None, **parameters):
        number = next(self.numbers)
        command = {"id": number, "method": method, "params": parameters}
        self.socket.send(json.dumps(command | ({"sessionId": session} if session else {})))
        while True:
            message = json.loads(self.socket.recv(timeout=60))
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def page(self, url, width=1200, height=900, scheme="light"):
        target = self.send_command("Target.createTarget", url="about:blank")["targetId"]
        session = self.send_command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        page.send_command("Network.enable")
        page.send_command("Runtime.enable")
        page.send_command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.send_command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.send_command("Page.navigate", url=url)
        return page


class Page:
    def __init__(self, browser, session):
        self.browser = browser
        self.session = session

    def send_command(self, method, **parameters):
        return self.browser.send_command(method, self.session, **parameters)

    def run(self, script):
        """The value of a JavaScript expression."""
        response = self.send_command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in response:
            raise RuntimeError(response["exceptionDetails"])
        return response["result"].get("value")

    def wait_for(self, script, description, seconds=GUARD_SECONDS):
        until = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < until, f"{description} has not come"
            time.sleep(0.05)
        return value

    def requested_urls(self):
        """The URLs that the page has requested so far, and its errors."""
        self.run("0")
        its = [event for event in self.browser.events if event.get("sessionId") == self.session]
        urls = [one["params"]["request"]["url"] for one in its if one["method"] == "Network.requestWillBeSent"]
        return urls, [one for one in its if one["method"] == "Runtime.exceptionThrown"]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.send_command("Page.captureScreenshot")["data"]))
