"""The report in a real browser: nothing is complained of or asked for, and what can be touched reacts."""

from collections.abc import Iterator
from typing import Any

import pytest

import fred
from tests import browsers
from tests.pages import KINDS, page_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsers.browser() as one:
        yield one


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {}


@pytest.fixture
def opened(browser, tmp_path, pages) -> Iterator[Any]:
    """Opens a kind of result from disk; afterwards nothing may have been said on the console, or asked for."""
    said, asked, views = list[str](), list[str](), list[Any]()

    def open_(kind: str, width: int = 1280) -> Any:
        file = tmp_path / "report.html"
        file.write_text(page_of(kind, pages))
        view = browser.new_page(viewport={"width": width, "height": 800})
        view.on("console", lambda message: said.append(message.text))
        view.on("pageerror", lambda error: said.append(str(error)))
        view.on("request", lambda request: asked.append(request.url))
        view.goto(file.as_uri())
        views.append(view)
        return view

    yield open_
    for view in views:
        view.wait_for_timeout(50)
        view.close()
    assert said == []
    assert asked == [(tmp_path / "report.html").as_uri()] * len(views)


def picture(view: Any, place: str) -> str:
    """Return the picture on a canvas."""
    return view.locator(place).first.evaluate("canvas => canvas.toDataURL()")


CURVES, PLOT = '.chart[data-of="curves"]', '.chart[data-of="curves"] .plot'


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [360, 1280])
def test_every_kind_opens_and_fits_its_window(kind, width, opened):
    view = opened(kind, width)
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert view.locator("#answer").inner_text()
    assert view.locator(f"{PLOT} canvas").count() == 1
    assert view.locator("#replay canvas").count() == (kind != "no clock")
    assert view.locator("svg.cluster").count() >= 1


def test_a_name_switches_its_run_off_and_on(opened):
    view = opened("learned")
    before = picture(view, f"{PLOT} canvas")
    assert view.locator(PLOT).get_attribute("data-shown") == "asgd\nssgd"
    button = view.locator(f'{CURVES} button[data-run="asgd"]')
    button.focus()
    view.keyboard.press("Enter")
    assert view.locator(PLOT).get_attribute("data-shown") == "ssgd"
    assert button.get_attribute("aria-pressed") == "false"
    view.wait_for_timeout(50)
    assert picture(view, f"{PLOT} canvas") != before
    button.click()
    view.mouse.move(0, 0)
    view.wait_for_timeout(50)
    assert picture(view, f"{PLOT} canvas") == before


def test_the_canvases_follow_dark_mode_and_print(opened):
    view = opened("learned")
    light = [picture(view, f"{PLOT} canvas"), picture(view, "#replay canvas")]
    view.emulate_media(color_scheme="dark")
    view.wait_for_timeout(50)
    dark = [picture(view, f"{PLOT} canvas"), picture(view, "#replay canvas")]
    assert all(one != other for one, other in zip(light, dark, strict=True))
    view.emulate_media(color_scheme="dark", media="print")
    view.wait_for_timeout(50)
    assert picture(view, f"{PLOT} canvas") != dark[0]


def test_the_axis_and_the_quantity_can_be_chosen(opened):
    view = opened("learned")
    x, y = view.locator(f"{CURVES} select").nth(1), view.locator(f"{CURVES} select").nth(0)
    offered = x.locator("option").evaluate_all("all => all.map(each => each.value)")
    assert offered == ["virtual_seconds", "updates", "gradients", "megabytes"]
    pictures = {picture(view, f"{PLOT} canvas")}
    for axis in offered[1:]:
        x.select_option(axis)
        assert view.locator(PLOT).get_attribute("data-axis") == axis
        view.wait_for_timeout(50)
        pictures.add(picture(view, f"{PLOT} canvas"))
    y.select_option("loss")
    view.wait_for_timeout(50)
    pictures.add(picture(view, f"{PLOT} canvas"))
    assert len(pictures) == 5


def test_curves_zoom_by_dragging_and_by_buttons_and_tell_their_values(opened):
    view = opened("learned")
    over = view.locator(f"{PLOT} .u-over")
    over.scroll_into_view_if_needed()
    before, box = picture(view, f"{PLOT} canvas"), over.bounding_box()
    view.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 50)
    said = view.locator(f"{CURVES} output").all_inner_texts()
    assert all(0 <= float(value) <= 1 for value in said if value != "–")
    assert len(said) == 2
    assert view.locator(f"{CURVES} .at").inner_text().startswith("virtual time, s: ")
    view.mouse.down()
    view.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 50)
    view.mouse.up()
    view.wait_for_timeout(50)
    zoomed = picture(view, f"{PLOT} canvas")
    assert zoomed != before
    view.locator(f"{CURVES} .zoom button", has_text="−").click()
    view.wait_for_timeout(50)
    assert picture(view, f"{PLOT} canvas") not in (before, zoomed)
    view.locator(f"{CURVES} .zoom button", has_text="all").click()
    view.wait_for_timeout(50)
    assert picture(view, f"{PLOT} canvas") == before


def test_a_heading_sorts_by_value_one_way_and_the_other(opened):
    view = opened("sweep")
    table = view.locator("table.sorts").first
    heads = table.locator("thead button").all_inner_texts()
    column = heads.index("mean") + 1

    def values() -> list[float]:
        return [float(text) for text in table.locator(f"tbody td:nth-child({column})").all_inner_texts()]

    given = values()
    button = table.locator("thead button").nth(column - 1)
    button.click()
    assert values() == sorted(given) != given
    button.click()
    assert values() == sorted(given, reverse=True)
    assert table.locator("thead th").nth(column - 1).get_attribute("aria-sort") == "descending"


def test_the_slider_replays_what_each_worker_does(opened):
    view = opened("faults")
    slider, told = view.locator("#replay .time"), view.locator("#replay .told")
    account = fred.spans(fred.run(fred.scenario(KINDS["faults"])).outcomes[0].schedule)
    end = account["end_ns"].max()
    words = {"computing": "comp.", "network": "sends", "waiting": "waits", "away": "away", "wasted": "wasted"}
    pictures = set()
    for moment in (100, 333, 700):
        slider.fill(str(moment))
        pictures.add(picture(view, "#replay canvas"))
        at = moment / 1000 * end
        now = account[(account["begin_ns"] <= at) & (at < account["end_ns"])].set_index("worker")["kind"]
        tiles = view.locator("#replay .now li").all_inner_texts()
        assert [tile.split("\n")[-1] for tile in tiles] == [words[now[worker]] for worker in range(3)]
        assert f"At {at / 1e9:.4g}"[:5] in told.inner_text()
    assert len(pictures) == 3
    slider.focus()
    before = told.inner_text()
    view.keyboard.press("ArrowRight")
    assert told.inner_text() != before
    view.locator("#replay button").click()
    view.wait_for_timeout(300)
    assert int(slider.input_value()) > 701
    view.locator("#replay button").click()
    assert "play" in view.locator("#replay button").inner_text()


def test_another_timing_can_be_replayed_and_looked_at_closely(opened):
    view = opened("learned")
    whole = picture(view, "#replay canvas")
    view.locator("#replay select").select_option(label="ssgd")
    other = picture(view, "#replay canvas")
    view.locator("#replay .zoom").fill("20")
    assert len({whole, other, picture(view, "#replay canvas")}) == 3
