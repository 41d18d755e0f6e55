"""Fixtures of one deployment and one browser for all tests of the UI. A test may save screenshots for a person to look at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from compaction_pipeline_tests.browser.deployment import Deployment, deployment

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

# The daemon's runs and the webserver share the cores, so a page may be slow.
_PATIENCE = 180_000


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "no Chromium on PATH: install your system's package, e.g. `apt-get install chromium`"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment(tmp_path_factory.mktemp("dagster")) as made:
        yield made


@pytest.fixture
def page(chromium: Browser, dagster: Deployment) -> Iterator[Page]:
    opened = chromium.new_page(base_url=dagster.url, viewport={"width": 1600, "height": 1000})
    opened.set_default_timeout(_PATIENCE)
    expect.set_options(timeout=_PATIENCE)
    yield opened
    opened.close()


@pytest.fixture
def screenshot(page: Page, tmp_path: Path) -> Callable[[str], None]:
    """A function that saves a screenshot under a name, in the folder COMPACTION_SCREENSHOTS when that is set."""
    folder = Path(os.environ.get("COMPACTION_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)

    def save(name: str) -> None:
        page.screenshot(path=folder / f"{name}.png")

    return save
