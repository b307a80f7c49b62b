"""The docs site: it needs no network, and reads right on a phone, on a desk and in the dark.

Needs what ``adabest[docs]`` installs; what is looked at needs Chromium, its driver and selenium, too. Skipped where one
of them is missing.
"""

import functools
import html
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import WIDTHS, Browser, find, needs_chromium, open_address, requests, start_chromium, styles

ROOT = Path(__file__).parents[2]
for name in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
    pytest.importorskip(name, reason=f"{name} isn't installed: it comes with adabest[docs]")
from tools.docs import with_bars_in_code, with_breaks_in_names, with_formulas, with_whole_options  # noqa: E402

PAGES = ("", "tutorial/", "explanation/mathematics/", "explanation/nesterov/", "results/table1/", "reference/python/")


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, on this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    pytest.importorskip("selenium.webdriver", reason="selenium isn't installed")
    browser = start_chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.quit()


def test_no_style_names_a_file_from_elsewhere(site: Path) -> None:
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert len(styles) > 2
    assert not any(re.search(r"(?:@import\s*|url\()[\"']?(?:https?:)?//", text) for text in styles)


def test_formulas_are_typeset_when_the_site_is_built(site: Path) -> None:
    text = (site / "explanation/nesterov/index.html").read_text("utf-8")
    source = (ROOT / "docs/explanation/nesterov.md").read_text("utf-8")
    assert text.count("<math") == len(re.findall(r"\$\$.+?\$\$|\$[^$]+\$", source, re.S)) > 5
    assert not any("arithmatex" in page.read_text("utf-8") for page in site.rglob("*.html"))


def test_a_formula_becomes_mathml() -> None:
    found = with_formulas(
        '<p><span class="arithmatex">\\(a &lt; b\\)</span></p><div class="arithmatex">\\[\nx\n\\]</div>'
    )
    inline, block = re.findall("<math.*?</math>", found)
    assert 'display="inline"' in inline
    assert [html.unescape(part) for part in re.findall(r"<m[io]>(.*?)</m[io]>", inline)] == ["a", "<", "b"]
    assert 'display="block"' in block
    assert "\\" not in found


def test_bars_are_drawn_over_letters_in_code_alone() -> None:
    barred = '<span class="barred">θ<span>\u0304</span></span>'
    assert with_bars_in_code("<p>θ\u0304 <code>θ\u0304_p</code></p>") == f"<p>θ\u0304 <code>{barred}_p</code></p>"
    split = '<pre><span class="n">θ</span><span class="err">\u0304</span></pre>'
    found = with_bars_in_code(split)
    assert found == f'<pre><span class="n">{barred}</span><span class="err"></span></pre>'


def test_names_may_break_behind_an_underscore_in_tables_alone() -> None:
    found = with_breaks_in_names("<p><code>a_b</code></p><td><code>batch_norm</code> x_y</td>")
    assert found == "<p><code>a_b</code></p><td><code>batch_<wbr>norm</code> x_y</td>"


def test_options_of_commands_are_kept_whole() -> None:
    command = '<div class="language-sh x"><a id="-a"></a>run a-b <span> </span>--batch-norm -h 1e-3</div> --other'
    option = '<span class="option">{}</span>'.format
    expected = command.replace("--batch-norm", option("--batch-norm")).replace("-h ", f"{option('-h')} ")
    assert with_whole_options(command) == expected


@needs_chromium
@pytest.mark.parametrize("size", WIDTHS)
def test_no_option_of_a_command_and_no_name_in_a_table_is_broken(
    size: tuple[int, int], chromium: Browser, address: str
) -> None:
    lines = "return [...document.querySelectorAll(arguments[0])].map((e) => e.getClientRects().length)"
    open_address(chromium, address, size)
    assert chromium.execute_script(lines, ".language-sh .option") == [1, 1, 1]
    open_address(chromium, address + "reference/settings/", size)
    counts = chromium.execute_script(
        "return [...document.querySelectorAll('td > code')].map((e) => [e.getClientRects().length, e.textContent])"
    )
    assert [name for count, name in counts if count > 1 + name.count("_") + name.count("-")] == []


@needs_chromium
@pytest.mark.parametrize("size", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_pages_fit_and_ask_nobody_else(size: tuple[int, int], page: str, chromium: Browser, address: str) -> None:
    open_address(chromium, address + page, size)
    assert chromium.execute_script("return innerWidth") == size[0]
    assert chromium.execute_script("return document.documentElement.scrollWidth") <= size[0]
    assert chromium.get_log("browser") == []
    asked = requests(chromium)
    assert address + page in asked
    assert [url for url in asked if not url.startswith((address, "data:", "about:", "blob:"))] == []


@needs_chromium
@pytest.mark.parametrize("size", WIDTHS)
def test_the_first_command_is_read_whole(size: tuple[int, int], chromium: Browser, address: str) -> None:
    open_address(chromium, address, size)
    command = find(chromium, ".md-typeset .language-sh code")[0]
    assert command.text.startswith("adabest compare")
    script = "const [e] = arguments; return [e.scrollWidth, e.clientWidth]"
    needed, there = chromium.execute_script(script, command)
    assert needed <= there


@needs_chromium
@pytest.mark.parametrize("size", WIDTHS)
def test_formulas_and_bars_are_seen(size: tuple[int, int], chromium: Browser, address: str) -> None:
    open_address(chromium, address + "explanation/nesterov/", size)
    formulas = find(chromium, ".md-content math")
    assert len(formulas) > 5
    assert all(one.size["height"] > 8 and one.size["width"] > 5 for one in formulas)
    content = find(chromium, ".md-content")[0].text
    assert "$" not in content
    assert "\\" not in content
    barred = find(chromium, "pre .barred")
    assert {one.get_attribute("textContent") for one in barred} == {"θ\u0304"}
    assert all("overline" in line for line in styles(chromium, "pre .barred", "textDecorationLine"))
    assert set(styles(chromium, "pre .barred > span", "fontSize")) == {"0px"}


@needs_chromium
@pytest.mark.parametrize("size", WIDTHS)
def test_the_site_is_as_dark_as_the_readers_system(size: tuple[int, int], chromium: Browser, address: str) -> None:
    for scheme in ("light", "dark", "light"):  # it doesn't stay what it was on the first visit
        open_address(chromium, address + "explanation/nesterov/", size, scheme)
        for name, bright in (("backgroundColor", scheme == "light"), ("color", scheme == "dark")):
            (colour,) = styles(chromium, "body", name)
            channels = [float(number) for number in re.findall(r"[\d.]+", colour)[:3]]
            assert (sum(channels) / 3 > 128) == bright, (scheme, name, colour)
