"""Chromium without a screen, driven over a pipe by its DevTools protocol; nothing but the standard library."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
LAY_PIPES = (  # the protocol's pipes are 3 and 4
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
PATIENCE = 30.0  # seconds until a silent browser is given up
FLAGS = (
    "--headless",
    "--no-sandbox",  # which does not work for root, as whom containers run
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
    "--proxy-server=127.0.0.1:9",  # where nothing answers
)


def find_chromium() -> str | None:
    """Give the path of an installed Chromium."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """A running browser. Use it in a context."""

    def __init__(self, program: str, home: Path) -> None:
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands, answers)]  # clear of 3 and 4
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-ISc",
                LAY_PIPES,
                *map(str, ends),
                program,
                *FLAGS,
                f"--user-data-dir={home}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=ends,
        )
        for end in (commands, answers, *ends):
            os.close(end)
        self._unread = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Do one thing and give what came of it; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        data = json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            answer = self.receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def receive(self, patience: float = PATIENCE) -> dict[str, Any]:
        """Give the next message; TimeoutError where none comes."""
        while b"\0" not in self._unread:
            if not select.select([self._in], [], [], patience)[0]:
                raise TimeoutError("The browser says nothing.")
            if not (more := os.read(self._in, 1 << 20)):
                raise RuntimeError("The browser has ended.")
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, url: str, *, width: int = 1200, height: int = 900, scheme: str = "light") -> Tab:
        """Give a new tab that has loaded an address."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, target, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.size(width, height)
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tab.go(url)
        return tab


class Tab:
    """One page and what it did."""

    def __init__(self, browser: Chromium, target: str, session: str) -> None:
        self._browser, self._target, self._session = browser, target, session

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Do one thing in this tab."""
        return self._browser.call(method, self._session, **params)

    def size(self, width: int, height: int) -> None:
        """Give the window a size, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def go(self, url: str) -> None:
        """Load an address and wait until it has loaded."""
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate("document.readyState === 'complete' && location.href !== 'about:blank'"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} does not load.")

    def evaluate(self, expression: str) -> Any:
        """Give the value of an expression, or of the promise that it is."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press and release keys, by the names that scripts know them by."""
        for key in keys:
            code = {"Enter": "\r", "Tab": "\t"}.get(key, "")
            windows = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36}.get(key, 0)
            windows = windows or {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}.get(key, 0)
            named = {"key": key, "code": key, "windowsVirtualKeyCode": windows}
            self.call("Input.dispatchKeyEvent", type="keyDown", text=code, **named)
            self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def click(self, x: float, y: float) -> None:
        """Click at a point of the window."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        """Write what the window shows as a PNG file."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def said(self) -> list[str]:
        """Give what the page complained of so far: messages, exceptions, what the policy refused, dialogs."""
        self.evaluate("new Promise((done) => setTimeout(done, 50))")
        kinds = (
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        )
        return [json.dumps(event["params"]) for event in self._events() if event["method"] in kinds]

    def requests(self) -> list[str]:
        """Give the addresses that were asked for, the page's own first."""
        sent = [
            event["params"]["request"] for event in self._events() if event["method"] == "Network.requestWillBeSent"
        ]
        return [request["url"] for request in sent]

    def _events(self) -> list[dict[str, Any]]:
        return [event for event in self._browser.events if event.get("sessionId") == self._session]
