"""Headless Chromium for tests, driven by its DevTools protocol over a pair of pipes.

  with Browser(folder) as browser:
      page = browser.open("http://127.0.0.1:1234/")
      page.wait_for("document.querySelector('h1')")
      page.screenshot(folder / "page.png")

Every answer and every wait has a deadline. What a page asks of the network, what it logs as wrong and
what it throws are kept, so that a test can say that there was nothing of it.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

ANSWER_S = 20
# In order of preference; Debian's package has the first.
NAMES = ("chromium", "chromium-browser", "google-chrome")


def program():
    """Where Chromium is. It is needed: a test without it fails."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    raise AssertionError("there is no Chromium here; deploy/install-deps --tests installs it (package `chromium`)")


def _high(fd):
    """The same file under a number that is in no caller's way."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(fd)
    return moved


class Browser:
    def __init__(self, width=1280, height=900, flags=()):
        self.width, self.height, self.flags = width, height, flags
        self.folder = tempfile.TemporaryDirectory(prefix="muster-browser-")
        self.pages = {}  # by session
        self._next = 0
        self._unread = b""
        self._start()

    def _start(self):
        to_browser, self._out = map(_high, os.pipe())
        self._in, from_browser = map(_high, os.pipe())

        def into_place():  # in the child: 3 to be read by Chromium, 4 to be written
            os.dup2(to_browser, 3)
            os.dup2(from_browser, 4)

        # Its own network services would ask others than the coordinator.
        self.process = subprocess.Popen(
            [program(), "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--no-first-run",
             "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--no-default-browser-check", "--mute-audio",
             "--hide-scrollbars", "--force-color-profile=srgb", f"--user-data-dir={self.folder.name}",
             f"--window-size={self.width},{self.height}", *self.flags, "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(3, 4),
            preexec_fn=into_place, start_new_session=True, env={**os.environ, "LANG": "C.UTF-8", "TZ": "UTC"})
        os.close(to_browser)
        os.close(from_browser)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            self.send("Browser.close")
        except (AssertionError, OSError):
            pass  # it is gone already
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=10)
        os.close(self._in)
        os.close(self._out)
        self.folder.cleanup()

    def open(self, address="about:blank", **options):
        """A page of its own, with storage of its own; `options` are those of Page.show_as."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.send(f"{domain}.enable")
        page.show_as(**options)
        if address != "about:blank":
            page.go(address)
        return page

    def send(self, method, session=None, **parameters):
        """Asks, and waits for the answer; events that come meanwhile go to their pages."""
        self._next += 1
        number = self._next
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_S
        while True:
            answer = self._read(deadline, method)
            if answer.get("id") == number:
                break
            self._dispatch(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def _read(self, deadline, what):
        while b"\0" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise AssertionError(f"Chromium did not answer {what} within {ANSWER_S} s")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise AssertionError(f"Chromium has ended with {self.process.poll()}, asked for {what}")
            self._unread += piece
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)

    def _dispatch(self, message):
        page = self.pages.get(message.get("sessionId"))
        if page:
            page.hear(message.get("method"), message.get("params", {}))

    def hear_all(self):
        """Takes what has come without being asked for."""
        while b"\0" in self._unread or select.select([self._in], [], [], 0)[0]:
            self._dispatch(self._read(time.monotonic() + ANSWER_S, "nothing"))


class Page:
    def __init__(self, browser, session, target):
        self.browser = browser
        self.session = session
        self.target = target
        self.requests = []  # addresses
        self.troubles = []  # exceptions and what the console calls an error

    def send(self, method, **parameters):
        return self.browser.send(method, session=self.session, **parameters)

    def hear(self, method, event):
        if method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.troubles.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error" and event["entry"]["source"] != "network":
            self.troubles.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")

    def show_as(self, width=None, height=None, dark=False, phone=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width or self.browser.width,
                  height=height or self.browser.height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def go(self, address):
        failed = self.send("Page.navigate", url=address).get("errorText")
        if failed:
            raise AssertionError(f"{address}: {failed}")

    def evaluate(self, expression):
        """The value of an expression of JavaScript; of a promise, what it gives."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def wait_for(self, expression, what="", timeout=20):
        """Polls until the expression gives something true, and returns that."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                value = self.evaluate(f"(() => {{ try {{ return {expression}; }} catch {{ return null; }} }})()")
            except AssertionError:
                value = None  # the page is being replaced
            if value:
                return value
            if time.monotonic() > deadline:
                shown = self.evaluate("document.body.innerText")
                raise AssertionError(f"not within {timeout} s: {what or expression}; the page says:\n{shown[:2000]}")
            time.sleep(0.02)

    def text(self, selector="body"):
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def screenshot(self, path, whole=False):
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        data = base64.b64decode(shot["data"])
        with open(path, "wb") as file:
            file.write(data)
        return data

    def close(self):
        self.browser.send("Target.closeTarget", targetId=self.target)
        self.browser.pages.pop(self.session, None)
