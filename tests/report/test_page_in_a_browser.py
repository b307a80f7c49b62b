"""The page of runs in a real browser: it loads without errors and without the network, and does what it offers.

Needs Chromium or Chrome, its driver and selenium; skipped where one of them is missing.
"""

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import WIDTHS, Browser, find, needs_chromium, open_address, requests, start_chromium, styles
from pages import make_run, store

import adabest
from adabest.runs.build import cut_partition
from adabest.runs.settings.resolution import resolve

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium isn't installed")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait
pytestmark = needs_chromium

DESKTOP, PHONE = (1200, 900), (360, 740)
FOREIGN = "fed<b>avg</b>"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    driver = start_chromium(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two entries of two seeds, one of them with a seed that diverged, and one whose label is foreign to HTML."""
    place = tmp_path_factory.mktemp("page")
    runs = []
    for seed in (0, 1):
        partition = cut_partition(make_run(seed=seed).config, resolve({"dataset": "stripes"})[1])
        identity = {"partition": {"fingerprint": partition.fingerprint, "samples_used": 234}}
        shared: dict[str, Any] = {"seed": seed, "identity": identity}
        slow = {number: 0.5 + 0.002 * number + 0.05 * seed for number in range(2, 101, 2)}
        fast = {number: 0.9 - 0.8 / number - 0.02 * seed for number in range(2, 101, 2)}
        runs.append(make_run(slow, algorithm="fedavg", **shared))
        lost = {number: value for number, value in fast.items() if number <= 60}
        runs.append(
            make_run(lost, algorithm="adabest", status="diverged", reason="the loss is nan", **shared)
            if seed
            else make_run(fast, algorithm="adabest", **shared)
        )
    runs.append(make_run({2: 0.4, 4: 0.45}, algorithm=FOREIGN, status="interrupted", identity=runs[0].identity))
    folders = [store(run, place / str(number)) for number, run in enumerate(runs)]
    return adabest.write_report(folders, html=place / "page.html")


Open = Callable[..., Browser]


@pytest.fixture
def opened(chromium: Browser) -> Open:
    """Opens a page, of which nothing is left from before, in a window of some size and in light or dark."""

    def open_page(path: Path, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> Browser:
        open_address(chromium, path.as_uri(), size, scheme)
        return chromium

    return open_page


def button(browser: Browser, selector: str, words: str) -> Any:
    (found,) = (one for one in find(browser, f"{selector} button") if one.text.split("\n")[0] == words)
    return found


def points(browser: Browser, entry: int) -> list[list[float]]:
    """The points of an entry's line, as they are drawn; none if it isn't."""
    lines = find(browser, f"#plot path.line[data-entry='{entry}']")
    text = lines[0].get_attribute("d") if lines else ""
    return [[float(number) for number in point.split()] for point in re.findall(r"[\d.-]+ [\d.-]+", text)]


def brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / (3 * 255)


def test_a_page_loads_without_errors_and_without_the_network(opened: Open, page: Path) -> None:
    browser = opened(page)
    for one in [*find(browser, "#families button"), *find(browser, "#legend button")]:
        one.click()
    assert browser.get_log("browser") == []
    asked = requests(browser)
    assert page.as_uri() in asked
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:"))] == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_the_tests_see_errors_and_requests(opened: Open, tmp_path: Path) -> None:
    """Else the one above would hold for an empty reason."""
    bad = tmp_path / "bad.html"
    bad.write_text('<img src="http://127.0.0.1:9/x.png"><script>missing()</script>', encoding="utf-8")
    browser = opened(bad)
    assert "http://127.0.0.1:9/x.png" in requests(browser)
    assert any("missing is not defined" in entry["message"] for entry in browser.get_log("browser"))


def test_the_policy_lets_nothing_in(opened: Open, page: Path, tmp_path: Path) -> None:
    """A page that was tampered with neither loads anything nor runs another script."""
    text = page.read_text(encoding="utf-8")
    foreign = '<img src="http://127.0.0.1:9/x.png"><script>document.title = "mine"</script></body>'
    (tmp_path / "bad.html").write_text(text.replace("</body>", foreign), encoding="utf-8")
    browser = opened(tmp_path / "bad.html")
    assert browser.title != "mine"
    assert len([entry for entry in browser.get_log("browser") if "Content Security Policy" in entry["message"]]) == 2


def test_curves_are_drawn_inside_the_plot(opened: Open, page: Path) -> None:
    browser = opened(page)
    find(browser, "#whole")[0].click()
    _, _, width, height = map(float, find(browser, "#plot > svg")[0].get_dom_attribute("viewBox").split())
    for entry, count in enumerate((50, 50, 2)):
        drawn = points(browser, entry)
        assert len(drawn) == count
        assert all(0 < x < width and 0 < y < height for x, y in drawn)
        assert [x for x, _ in drawn] == sorted(x for x, _ in drawn)
    rising = points(browser, 0)
    assert rising[-1][1] < rising[0][1]  # y counts from the top
    assert rising[-1][0] - rising[0][0] > width / 2
    assert len(find(browser, "#plot path.band")) == 2
    assert len(find(browser, "#plot path.end")) == 1  # diverged
    assert len(find(browser, "#plot circle.end")) == 1  # unfinished
    assert "× marks where a run diverged" in find(browser, "#note")[0].text


def test_lines_differ_in_colour_and_in_dashes(opened: Open, page: Path) -> None:
    browser = opened(page)
    for name in ("stroke", "strokeDasharray"):
        assert len(set(styles(browser, "#plot path.line", name))) == 3


def test_an_algorithm_is_toggled(opened: Open, page: Path) -> None:
    browser = opened(page)
    toggle = button(browser, "#legend", "adabest")
    assert toggle.get_attribute("aria-pressed") == "true"
    before = points(browser, 0)
    toggle.click()
    assert toggle.get_attribute("aria-pressed") == "false"
    assert points(browser, 1) == []
    assert points(browser, 0) != before  # the axis is that of what is shown
    assert "2 of 3 shown" in find(browser, "#count")[0].text
    toggle.send_keys(" ")  # by keyboard
    assert toggle.get_attribute("aria-pressed") == "true"
    assert points(browser, 0) == before
    find(browser, "#none")[0].click()
    assert find(browser, "#plot path.line") == []
    assert "No entry is chosen." in find(browser, "#plot")[0].text
    find(browser, "#every")[0].click()
    assert len(find(browser, "#plot path.line")) == 3


def test_labels_are_words(opened: Open, page: Path) -> None:
    browser = opened(page)
    assert button(browser, "#legend", FOREIGN).find_elements("css selector", "b") == []


def test_metrics_are_switched(opened: Open, page: Path) -> None:
    browser = opened(page)
    seen = [points(browser, 0)]
    assert not find(browser, "#log")[0].is_displayed()
    for name in ("Loss", "‖θ‖", "Participation"):
        button(browser, "#families", name).click()
        pressed = find(browser, "#families button[aria-pressed=true]")
        assert [one.text for one in pressed] == [name]
        drawn = points(browser, 0)
        assert len(drawn) == 50
        assert drawn not in seen
        seen.append(drawn)
    button(browser, "#metrics", "Present").click()
    assert "present in the round" in find(browser, "#what")[0].text
    assert points(browser, 0) not in seen
    button(browser, "#families", "Accuracy").click()
    button(browser, "#metrics", "Validation").click()
    assert "validation clients" in find(browser, "#what")[0].text
    assert points(browser, 0) not in seen


def test_the_logarithmic_scale(opened: Open, page: Path) -> None:
    browser = opened(page)
    button(browser, "#families", "‖θ‖").click()
    straight = points(browser, 0)
    find(browser, "#log")[0].click()
    assert find(browser, "#log")[0].get_attribute("aria-pressed") == "true"
    bent = points(browser, 0)
    middle = len(straight) // 2

    def height(drawn: list[list[float]]) -> float:
        return (drawn[middle][1] - drawn[0][1]) / (drawn[-1][1] - drawn[0][1])

    assert height(straight) == pytest.approx(0.5, abs=0.02)  # ‖θ‖ is twice the round in these runs
    assert height(bent) > 0.8


def test_the_cursor_tells_round_and_values(opened: Open, page: Path) -> None:
    browser = opened(page)
    (tip,) = find(browser, "#tip")
    assert not tip.is_displayed()
    webdriver.ActionChains(browser).move_to_element(find(browser, "#plot > svg")[0]).perform()
    assert tip.is_displayed()
    words = tip.text.split("\n")
    number = int(words[0].removeprefix("Round "))
    assert 30 < number < 70
    assert "fedavg" in words
    expected = 100 * (0.5 + 0.002 * number + 0.025)
    shown = float(words[words.index("fedavg") + 1].split(" ± ")[0])
    assert shown == pytest.approx(expected, abs=0.06)
    assert FOREIGN not in words  # it ended before
    find(browser, "#plot > svg")[0].send_keys(webdriver.Keys.ARROW_RIGHT)
    assert tip.text.split("\n")[0] == f"Round {number + 2}"
    assert f"Round {number + 2}: adabest" in find(browser, "#spoken")[0].get_attribute("textContent")


def test_the_shown_curves_are_saved(opened: Open, page: Path, tmp_path: Path) -> None:
    browser = opened(page)
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    button(browser, "#legend", "adabest").click()
    find(browser, "#save")[0].click()
    saved = tmp_path / "scored_accuracy.csv"
    WebDriverWait(browser, 30).until(lambda _: saved.is_file())
    head, *rows = csv.reader(saved.read_text(encoding="utf-8").splitlines())
    assert head == ["entry", "round", "scored_accuracy", "standard_deviation"]
    assert {row[0] for row in rows} == {"fedavg", FOREIGN}
    assert rows[0][:3] == ["fedavg", "2", "0.529"]
    assert float(rows[0][3]) == pytest.approx(0.05 / 2**0.5, rel=1e-3)
    assert len(rows) == 52


def test_partitions_are_painted(opened: Open, page: Path) -> None:
    browser = opened(page)
    colours = (
        "const c = arguments[0]; const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "const s = new Set(); for (let i = 0; i < d.length; i += 4) s.add([d[i], d[i+1], d[i+2]].join());"
        "return [c.width, c.height, s.size]"
    )
    first, second = find(browser, ".partition")
    assert [first.is_displayed(), second.is_displayed()] == [True, False]
    width, height, shades = browser.execute_script(colours, first.find_element("css selector", ".cells"))
    assert (width, height) == (9, 3)
    assert shades > 5
    find(browser, "#partition option")[1].click()
    assert [first.is_displayed(), second.is_displayed()] == [False, True]
    width, *_ = browser.execute_script(colours, second.find_element("css selector", ".cells"))
    assert width == 9


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_readable_at_phone_width(scheme: str, opened: Open, page: Path) -> None:
    browser = opened(page, PHONE, scheme)
    assert browser.execute_script("return innerWidth") == 360
    for name in ("Accuracy", "Loss", "Participation"):
        button(browser, "#families", name).click()
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    sizes = styles(browser, "body *:not(script):not(noscript)", "fontSize")
    assert min(float(size.removesuffix("px")) for size in sizes) >= 13
    (plot,) = find(browser, "#plot > svg")
    assert plot.size["width"] > 280
    assert len(points(browser, 0)) == 50
    boxes = find(browser, ".box")
    assert all(box.size["width"] <= 360 for box in boxes)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_dark_is_dark(size: tuple[int, int], opened: Open, page: Path) -> None:
    for scheme in ("light", "dark"):
        browser = opened(page, size, scheme)
        ground, ink = (brightness(styles(browser, "body", name)[0]) for name in ("backgroundColor", "color"))
        lines = [brightness(colour) for colour in styles(browser, "#plot path.line", "stroke")]
        panel = brightness(styles(browser, ".panel", "backgroundColor")[0])
        low, high = (ground, ink) if scheme == "dark" else (ink, ground)
        assert low < 0.15
        assert high > 0.85
        assert all(abs(line - panel) > 0.25 for line in lines)
    before = styles(browser, "body", "backgroundColor")
    find(browser, "#scheme")[0].click()  # the reader may want the other one
    assert styles(browser, "body", "backgroundColor") != before


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine algorithms in one setting, with one seed or two, and two of them in another."""
    place = tmp_path_factory.mktemp("cells")
    names = ["fedavg", "fedprox", "scaffold", "scaffold-m", "scaffold-gradient", "feddyn", "adabest"]
    names += ["mine:Own", "yours:FedFancyWithAVeryLongName"]
    asked = [(name, 0.1, seed) for number, name in enumerate(names) for seed in range(1 + number % 2)]
    for number, (name, alpha, seed) in enumerate([*asked, ("fedavg", 1.0, 0), ("adabest", 1.0, 0)]):
        store(make_run(algorithm=name, alpha=alpha, seed=seed), place / f"{number:02}")
    return adabest.write_report(place, html=place / "page.html")


def visible(browser: Browser, selector: str) -> list[str]:
    """The words of the elements that are to be seen, without swatches."""
    return [one.text for one in find(browser, selector) if one.is_displayed()]


@pytest.mark.parametrize("size", WIDTHS)
def test_nothing_is_cut_at_any_width(size: tuple[int, int], opened: Open, cells: Path) -> None:
    browser = opened(cells, size)
    width, _ = size
    assert browser.execute_script("return innerWidth") == width
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    script = """
        const [, , both] = arguments;
        const box = arguments[0].getBoundingClientRect();
        const outside = (e) => { const r = e.getBoundingClientRect();
            const sideways = r.left < box.left - 1 || r.right > box.right + 1;
            return sideways || (both && (r.top < box.top - 1 || r.bottom > box.bottom + 1)); };
        return [...arguments[0].querySelectorAll(arguments[1])].filter(outside).map((e) => e.textContent);
    """
    (side,) = find(browser, ".side")
    assert len(find(browser, "#legend button")) == 11
    assert browser.execute_script(script, side, "#legend button, #legend .label, #legend .value", True) == []
    assert browser.execute_script(script, find(browser, ".panel")[0], "#legend button", True) == []
    (results,) = find(browser, "#results .box")
    assert browser.execute_script(script, results, "tbody th, tbody td", False) == []  # none is hidden sideways
    rows = visible(browser, "#results tbody tr")
    assert "90.0" in rows[0]
    if width < 600:  # cards name their figures; their head is for those who listen
        names = [cell.get_attribute("data-name") for cell in find(browser, "#results tbody tr:first-child td")]
        assert names == ["n", "accuracy %", "rounds to 90 %", "sent MB", "‖θ‖", "‖h‖"]
        shown = "return getComputedStyle(document.querySelector('#results td'), '::before').content"
        assert browser.execute_script(shown) == '"n"'
    assert browser.get_log("browser") == []
    assert [url for url in requests(browser) if not url.startswith(("file:", "data:", "about:"))] == []


@pytest.mark.parametrize("size", WIDTHS)
def test_labels_in_tables_break_behind_commas_and_stay_beside_their_lines(
    size: tuple[int, int], opened: Open, cells: Path
) -> None:
    browser = opened(cells, size)
    script = """
        return [...document.querySelectorAll('#results th.entry')].map((head) => {
            const label = head.querySelector('.label');
            const range = document.createRange();
            const lines = (part) => { range.selectNode(part); return range.getClientRects().length; };
            const parts = [...label.childNodes].filter((one) => one.nodeType === Node.TEXT_NODE);
            const middle = (e) => { const r = e.getBoundingClientRect(); return (r.top + r.bottom) / 2; };
            const away = Math.abs(middle(label) - middle(head.querySelector('.swatch')));
            return [parts.map((one) => one.data), parts.map(lines), away];
        });
    """
    found = browser.execute_script(script)
    assert ["yours:FedFancyWithAVeryLongName,", "alpha=0.1"] in [parts for parts, _, _ in found]
    broken = [part for parts, counts, _ in found for part, count in zip(parts, counts, strict=True) if count > 1]
    assert [part for part in broken if len(part) < 30] == []  # a phone isn't wider than that
    assert max(away for _, _, away in found) < 6


def test_a_table_that_must_scroll_says_so(opened: Open, cells: Path) -> None:
    browser = opened(cells, WIDTHS[1])
    (results,) = find(browser, "#results .box")
    (hint,) = find(browser, "#results .hint")
    browser.execute_script("arguments[0].style.width = '300px'", results)
    WebDriverWait(browser, 10).until(lambda _: hint.is_displayed())
    assert "scrolls sideways" in hint.text
    assert "more" in results.get_attribute("class").split()
    script = "const [b] = arguments; b.scrollLeft = b.scrollWidth; const last = b.querySelector('td:last-child');"
    reached = "return last.getBoundingClientRect().right - b.getBoundingClientRect().right"
    assert browser.execute_script(script + reached, results) <= 1
    WebDriverWait(browser, 10).until(lambda _: "more" not in results.get_attribute("class").split())
    browser.execute_script("arguments[0].style.width = ''", results)
    WebDriverWait(browser, 10).until(lambda _: not hint.is_displayed())


@pytest.mark.parametrize("size", WIDTHS)
def test_entries_are_filtered_by_word_and_by_cell(size: tuple[int, int], opened: Open, cells: Path) -> None:
    browser = opened(cells, size)
    assert [option.text for option in find(browser, "#cell option")] == ["all", "alpha=0.1", "alpha=1"]
    find(browser, "#cell option")[2].click()
    both = ["fedavg,alpha=1", "adabest,alpha=1"]
    for place in ("#results", "#settings", "#environment"):
        assert visible(browser, f"{place} tr[data-entry] th") == both
    assert visible(browser, "#legend .label") == both
    assert len(find(browser, "#plot path.line")) == 2
    assert visible(browser, "#matching") == ["2 of 11 entries"]
    colours = styles(browser, "#plot path.line", "stroke")
    find(browser, "#words")[0].send_keys("AdaBest")
    assert visible(browser, "#results tbody th") == both[1:]
    assert len(find(browser, "#plot path.line")) == 1
    find(browser, "#none")[0].click()
    assert find(browser, "#plot path.line") == []
    find(browser, "#every")[0].click()
    find(browser, "#cell option")[0].click()
    assert visible(browser, "#results tbody th") == ["adabest,alpha=0.1", "adabest,alpha=1"]
    lines = styles(browser, "#plot path.line", "stroke")
    assert lines == [colours[1]] * 2  # an algorithm keeps its colour in every cell
    assert len(set(styles(browser, "#plot path.line", "strokeDasharray"))) == 2
    find(browser, "#words")[0].send_keys(" nothing")
    assert visible(browser, "#results tbody th") == []
    assert "No entry is chosen." in find(browser, "#plot")[0].text
    find(browser, "#words")[0].clear()
    browser.execute_script("document.getElementById('words').dispatchEvent(new Event('input'))")
    assert len(visible(browser, "#results tbody th")) == 11
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_twelve_entries_have_twelve_colours(scheme: str, opened: Open, tmp_path: Path) -> None:
    for number in range(12):
        store(make_run(algorithm="adabest", alpha=number + 1.0), tmp_path / f"{number:02}")
    browser = opened(adabest.write_report(tmp_path, html=tmp_path / "page.html"), WIDTHS[1], scheme)
    colours = styles(browser, "#plot path.line", "stroke")
    assert len(set(colours)) == len(colours) == 12


def test_nothing_to_draw(opened: Open, tmp_path: Path) -> None:
    run = store(make_run({}, status="running"), tmp_path / "run")
    browser = opened(adabest.write_report(run, html=tmp_path / "page.html"))
    assert browser.get_log("browser") == []
    assert "No run has been evaluated yet." in find(browser, "#curves")[0].text


def test_of_many_entries_some_are_shown(opened: Open, tmp_path: Path) -> None:
    for number in range(14):
        store(make_run(algorithm="adabest", alpha=number + 1.0), tmp_path / f"{number:02}")
    browser = opened(adabest.write_report(tmp_path, html=tmp_path / "page.html"), PHONE)
    assert len(find(browser, "#plot path.line")) == 8
    assert "8 of 14 shown" in find(browser, "#count")[0].text
    find(browser, "#every")[0].click()
    assert len(find(browser, "#plot path.line")) == 14
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
