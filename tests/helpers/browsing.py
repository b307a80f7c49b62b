"""Chromium for tests: starting it, what its window is like, and what can be read off a page."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

Browser = Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="there is no Chromium with its chromedriver here")
WIDTHS = [(390, 844), (1280, 900)]

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,900",
)

_HAS_LOADED = "return document.readyState === 'complete' && /^(http|file)/.test(location.protocol)"
_PATIENCE = 60.0


def start_chromium(profile: Path) -> Browser:
    """A browser that notes errors and requests; ``quit`` ends it."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))


def open_address(browser: Browser, address: str, size: tuple[int, int], scheme: str = "light") -> None:
    """Opens a page in a window of some size, in light or dark, and forgets the logs of earlier ones."""
    width, height = size
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}  # what moves can't be clicked
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(address)
    ends = time.monotonic() + _PATIENCE
    while not browser.execute_script(_HAS_LOADED):
        assert time.monotonic() < ends, f"{address} hasn't loaded; the browser shows {browser.current_url}"
        if browser.current_url.startswith("chrome-error:"):  # on a machine under load, a connection may fail
            browser.get(address)
        time.sleep(0.05)


def find(browser: Browser, selector: str) -> list[Any]:
    """The elements that a selector of CSS names."""
    found: list[Any] = browser.find_elements("css selector", selector)
    return found


def requests(browser: Browser) -> list[str]:
    """The addresses that were asked for since the page was opened."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [one["params"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    return [one["request"]["url"] for one in sent]


def styles(browser: Browser, selector: str, name: str) -> list[str]:
    """A property of all elements that a selector names, as it is applied."""
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => getComputedStyle(e)[arguments[1]])"
    found: list[str] = browser.execute_script(script, selector, name)
    return found
