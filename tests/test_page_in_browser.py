"""The report in a real browser: it says nothing on the console, loads nothing else, and its controls work."""

from collections.abc import Iterator
from typing import Any

import pytest

import fred
from tests import browsers
from tests.pages import KINDS, page_of, result_of

pytestmark = pytest.mark.slow

CURVES, PLOT = '.chart[data-of="curves"]', '.chart[data-of="curves"] .plot'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsers.browser() as chromium:
        yield chromium


@pytest.fixture
def opened(browser, tmp_path) -> Iterator[Any]:
    """Open a kind of result from disk; afterwards nothing may be on the console, and nothing else may have been loaded."""
    console, requests, views = list[str](), list[str](), list[Any]()

    def open_page(kind: str, width: int = 1280) -> Any:
        file = tmp_path / "report.html"
        file.write_text(page_of(kind))
        view = browser.new_page(viewport={"width": width, "height": 800})
        view.on("console", lambda message: console.append(message.text))
        view.on("pageerror", lambda error: console.append(str(error)))
        view.on("request", lambda request: requests.append(request.url))
        view.goto(file.as_uri())
        views.append(view)
        return view

    yield open_page
    for view in views:
        view.wait_for_timeout(50)
        view.close()
    assert console == []
    assert requests == [(tmp_path / "report.html").as_uri()] * len(views)


def picture(view: Any, place: str = f"{PLOT} canvas") -> str:
    """Return the picture on a canvas, which scripts draw in the browser's own time."""
    view.wait_for_timeout(50)
    return view.locator(place).first.evaluate("canvas => canvas.toDataURL()")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_opens_and_fits_its_window(kind, opened):
    for width in (360, 1280):
        view = opened(kind, width)
        assert view.evaluate("document.documentElement.scrollWidth") <= width
        assert view.locator("#answer").inner_text()
        assert view.locator(f"{PLOT} canvas").count() == 1
        assert view.locator("#replay canvas").count() == (kind != "no clock")
        assert view.locator("svg.cluster").count() >= 1


def test_a_name_switches_its_run_off_and_on(opened):
    view = opened("learned")
    before, button = picture(view), view.locator(f'{CURVES} button[data-run="asgd"]')
    assert view.locator(PLOT).get_attribute("data-shown") == "asgd\nssgd"
    button.focus()
    view.keyboard.press("Enter")
    assert view.locator(PLOT).get_attribute("data-shown") == "ssgd"
    assert button.get_attribute("aria-pressed") == "false" and picture(view) != before
    button.click()
    view.mouse.move(0, 0)
    assert picture(view) == before


def test_axes_quantities_timings_colours_and_zoom_change_the_pictures(opened):
    view, replay = opened("learned"), "#replay canvas"
    y, x = (view.locator(f"{CURVES} select").nth(number) for number in (0, 1))
    curves, replays = [picture(view)], [picture(view, replay)]
    for axis in ("updates", "gradients", "megabytes"):
        x.select_option(axis)
        assert view.locator(PLOT).get_attribute("data-axis") == axis
        curves.append(picture(view))
    y.select_option("loss")
    curves.append(picture(view))
    view.locator("#replay select").select_option(label="ssgd")
    replays.append(picture(view, replay))
    view.locator("#replay .zoom").fill("20")
    replays.append(picture(view, replay))
    view.emulate_media(color_scheme="dark")
    curves, replays = [*curves, picture(view)], [*replays, picture(view, replay)]
    view.emulate_media(color_scheme="dark", media="print")
    assert picture(view) != curves[-1]
    assert (len(set(curves)), len(set(replays))) == (6, 4)


def test_the_target_has_a_label_and_a_synchronous_run_no_row_for_staleness(opened):
    view = opened("learned")
    view.evaluate("""() => {
        const write = CanvasRenderingContext2D.prototype.fillText;
        window.written = [];
        CanvasRenderingContext2D.prototype.fillText = function (text, ...more) { written.push(text); write.call(this, text, ...more); };
    }""")
    y = view.locator(f"{CURVES} select").first
    for quantity in ("loss", "error"):
        y.select_option(quantity)
        picture(view)
        assert ("target 0.7" in view.evaluate("written")) == (quantity == "error")
    heights, notes = {}, {}
    for run in ("asgd", "ssgd"):
        view.evaluate("written.length = 0")
        view.locator("#replay select").select_option(label=run)
        picture(view, "#replay canvas")
        heights[run] = view.locator("#replay canvas").bounding_box()["height"]
        notes[run] = view.locator("#replay").inner_text()
        assert ("staleness" in view.evaluate("written")) == (run == "asgd")
    assert heights["ssgd"] < heights["asgd"]
    assert "No gradient in it is stale." in notes["ssgd"] and "with staleness" not in notes["ssgd"]


def test_curves_zoom_by_dragging_and_by_buttons_and_tell_their_values(opened):
    view = opened("learned")
    overlay = view.locator(f"{PLOT} .u-over")
    overlay.scroll_into_view_if_needed()
    before, box = picture(view), overlay.bounding_box()
    view.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 50)
    values = view.locator(f"{CURVES} output").all_inner_texts()
    assert len(values) == 2 and all(0 <= float(value) <= 1 for value in values if value != "–")
    assert view.locator(f"{CURVES} .at").inner_text().startswith("virtual time, s: ")
    view.mouse.down()
    view.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 50)
    view.mouse.up()
    zoomed = picture(view)
    view.locator(f"{CURVES} .zoom button", has_text="−").click()
    assert len({before, zoomed, picture(view)}) == 3
    view.locator(f"{CURVES} .zoom button", has_text="all").click()
    assert picture(view) == before


def test_a_heading_sorts_by_value_one_way_and_the_other(opened):
    table = opened("sweep").locator("table.sorts").first
    column = table.locator("thead button").all_inner_texts().index("mean")

    def values() -> list[float]:
        return [float(text) for text in table.locator(f"tbody td:nth-child({column + 1})").all_inner_texts()]

    original, button = values(), table.locator("thead button").nth(column)
    button.click()
    assert values() == sorted(original) != original
    button.click()
    assert values() == sorted(original, reverse=True)
    assert table.locator("thead th").nth(column).get_attribute("aria-sort") == "descending"


def test_the_slider_replays_what_each_worker_does(opened):
    view = opened("faults")
    slider, words = view.locator("#replay .time"), view.locator("#replay .told")
    account = fred.spans(result_of("faults").outcomes[0].schedule)
    end = account["end_ns"].max()
    names = {"computing": "comp.", "network": "sends", "waiting": "waits", "away": "away", "wasted": "wasted"}
    pictures = set()
    for moment in (100, 333, 700):
        slider.fill(str(moment))
        pictures.add(picture(view, "#replay canvas"))
        at = moment / 1000 * end
        now = account[(account["begin_ns"] <= at) & (at < account["end_ns"])].set_index("worker")["kind"]
        tiles = view.locator("#replay .now li").all_inner_texts()
        assert [tile.split("\n")[-1] for tile in tiles] == [names[now[worker]] for worker in range(3)]
        assert f"At {at / 1e9:.4g}"[:5] in words.inner_text()
    assert len(pictures) == 3
    slider.focus()
    before = words.inner_text()
    view.keyboard.press("ArrowRight")
    assert words.inner_text() != before
    button = view.locator("#replay button")
    button.click()
    view.wait_for_timeout(300)
    assert int(slider.input_value()) > 701
    button.click()
    assert "play" in button.inner_text()
