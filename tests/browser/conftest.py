"""A headless Chromium driven through its debugging pipe, with no package besides Python's own; and a page for it."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import torch

import spikecast
from spikecast.page import ReportData, build
from tests.nets import Branch

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 60.0  # seconds for an answer; a loaded machine is slow, a broken browser is silent
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--force-color-profile=srgb", "--mute-audio", "--disable-dev-shm-usage",
)  # fmt: skip


def find() -> str | None:
    """Where a Chromium is, by SPIKECAST_CHROMIUM or one of its usual names."""
    return os.environ.get("SPIKECAST_CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page; commands are those of the DevTools protocol."""

    def __init__(self, executable: str, profile: Path) -> None:
        commands_out, commands_in = os.pipe()
        answers_out, answers_in = os.pipe()
        root = ["--no-sandbox"] if os.geteuid() == 0 else []  # which Chromium refuses to root otherwise
        argv = [executable, *FLAGS, *root, f"--user-data-dir={profile}", "about:blank"]
        # The browser reads commands from descriptor 3 and answers on 4.
        script = f'exec "$@" 3<&{commands_out} 4>&{answers_in}'
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", script, "bash", *argv], pass_fds=(commands_out, answers_in),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands_out)
        os.close(answers_in)
        self.into, self.out = commands_in, answers_out
        self.buffer, self.number, self.session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self.into)
        os.close(self.out)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def send(self, method: str, **parameters: Any) -> Any:
        """A command and its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.into, data) :]
        while True:
            found = self._read()
            if found.get("id") == self.number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                return found["result"]
            self.events.append(found)

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.out], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self.out, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError(f"{self.process.args!r} does not answer")
            self.buffer += data
        text, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(text)

    def run(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", expression))
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        self._until(lambda: bool(self.run(condition)), condition)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > end:
                raise RuntimeError(f"waited in vain for: {what}")
            time.sleep(0.05)

    def size(self, width: int, height: int = 900, *, dark: bool = False, scale: float = 1) -> None:
        """How large the page is, and whether its reader likes it dark."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="", features=[scheme])

    def open(self, path: Path) -> None:
        """Load a file and wait until its script is through."""
        self.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.wait(f"location.href === {json.dumps(path.resolve().as_uri())} && document.readyState === 'complete'")

    def mouse(self, selector: str, x: float = 0.5, y: float = 0.5, *, click: bool = False) -> None:
        """Point at a place inside an element (0..1 from its left and top), and click."""
        find = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{find}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = f"(({{left, top, width, height}}) => [left, top, width, height])({find}.getBoundingClientRect())"
        left, top, width, height = self.run(box)
        place = {"x": left + x * width, "y": top + y * height}
        self.send("Input.dispatchMouseEvent", type="mouseMoved", **place)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def click(self, selector: str) -> None:
        """Click the middle of an element."""
        self.mouse(selector, click=True)

    def press(self, key: str, text: str = "") -> None:
        """A key on the keyboard; with `text`, one that types."""
        codes = {"ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, "Enter": 13, " ": 32}
        code = codes.get(key, ord(key.upper()[0]))
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed)

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def complaints(self) -> list[str]:
        """What the console has said, and errors that nobody caught."""
        self.run("0")
        found = []
        for event in self.events:
            method, given = event.get("method"), event.get("params", {})
            if method == "Runtime.consoleAPICalled":
                found.append(" ".join(str(a.get("value", a.get("description"))) for a in given["args"]))
            elif method == "Runtime.exceptionThrown":
                found.append(given["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif method == "Log.entryAdded":
                found.append(given["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Every address the page has asked for."""
        sent = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith("data:")]


@pytest.fixture(scope="session")
def report() -> ReportData:
    """A small network in two codings, on noise."""
    torch.manual_seed(0)
    model = Branch(8).eval()
    batches = [(torch.randn(16, 3, 12, 12), torch.randint(0, 5, (16,))) for _ in range(2)]
    configs = {
        name: spikecast.Config(num_steps=6, num_levels=2, burst=1, coding=name, thresholds="quantile")
        for name in ("differential", "rate")
    }
    snns = {name: spikecast.convert(model, batches, config) for name, config in configs.items()}
    return build(model, snns, batches, title="A small network", command="make browser", classes=list("abcde"))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests."""
    executable = find()
    if executable is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed (Debian: apt install chromium)")
    with Browser(executable, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def page(browser: Browser, report: ReportData, tmp_path: Path) -> Browser:
    """The page of the report, opened at 1280 pixels."""
    browser.size(1280)
    browser.open(report.write_html(tmp_path / "report.html"))
    browser.wait("document.documentElement.dataset.ready === 'true'")
    return browser
