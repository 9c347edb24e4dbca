"""The lessons on the server: routes and what they refuse, and the view in a browser."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx2
import pytest
from tests.serve.opened import Opened
from tests.serve.serving import Running, run_async, running

import chainrule as cr
from chainrule.cli.main import main
from chainrule.course.lesson import lesson_paths
from chainrule.course.markdown import VIEW_LINK
from chainrule.serve.api import lessons
from chainrule.serve.api.lessons import Lessons
from chainrule.serve.batching.requests import BusyError

SOLUTIONS = Path(__file__).parents[1] / "course" / "solutions"


@pytest.fixture(scope="module")
def learning() -> Iterator[Running]:
    """A server that was given no model."""
    with running([], "--learn") as found:
        yield found


def checked(server: Running, **body: object) -> httpx2.Response:
    asked = {"lesson": 3, "exercise": "5", "answer": "1", **body}
    return httpx2.post(f"{server.address}/v1/lessons/check", json=asked, timeout=60)


def solutions(number: int, student: str = "") -> dict[str, Any]:
    return dict(runpy.run_path(str(SOLUTIONS / f"{number:02}.py"))["answers"](student))


# -- routes -----------------------------------------------------------------------------------------------


def test_small_models_are_made_where_none_is_given(learning: Running) -> None:
    listed = httpx2.get(f"{learning.address}/v1/models").json()["data"]
    assert [one["id"] for one in listed] == ["shakespeare", "toy"]


def test_lessons_are_listed_and_read(learning: Running) -> None:
    listed = httpx2.get(f"{learning.address}/v1/lessons", timeout=60).json()
    assert listed["is_on"] and [one["number"] for one in listed["data"]] == list(lesson_paths())
    ann, bob = (
        httpx2.get(f"{learning.address}/v1/lessons/3", params={"student": name}, timeout=60).json()
        for name in ("ann", "bob")
    )
    assert ann["title"] == "Counting" and ann["student"] == "ann"
    assert ann["parts"] != bob["parts"]
    assert {part["is_typed"] for part in ann["parts"] if "id" in part} == {True, False}


def test_typed_answers_are_graded_as_by_the_library(learning: Running) -> None:
    one, right = cr.lesson(3, "ann"), solutions(3, "ann")
    typed = [grader for grader in one.graders.values() if grader.is_typed]
    assert len(typed) >= 4
    for grader in typed:
        found = checked(learning, exercise=grader.id, student="ann", answer=repr(right[grader.name])).json()
        assert found["state"] == "right", found
        for wrong in grader.wrong:
            value = grader.value(wrong["value"])
            found = checked(learning, exercise=grader.id, student="ann", answer=repr(value)).json()
            assert (found["state"], found["message"]) == ("wrong", one.check(grader.id, value).message)
        assert checked(learning, exercise=grader.id, student="ann", answer=" ").json()["state"] == "not yet"
    answer = repr(right["answer_5"])
    assert checked(learning, exercise="5", student="zoe", answer=answer).json()["state"] == "wrong"


def test_code_is_not_run(learning: Running, tmp_path: Path) -> None:
    refused = checked(learning, exercise="4", answer="lambda lines, n: {}")
    assert refused.status_code == 400 and "answers.py" in refused.json()["error"]["message"]
    made = tmp_path / "made"
    found = checked(learning, answer=f"__import__('pathlib').Path({str(made)!r}).touch()").json()
    assert (found["state"], found["message"]) == ("wrong", "expected a number, found str: write it without quotes")
    assert not made.exists()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"lesson": 99}, 404),
        ({"lesson": "three"}, 400),
        ({"exercise": "99"}, 400),
        ({"answer": "x" * 2001}, 400),
        ({"answer": "9" * 2000}, 400),
        ({"answer": "1/0"}, 400),
        ({"answer": 5}, 400),
        ({"answer": "-" * 1999 + "1"}, 200),
        ({"student": "x" * 65}, 400),
    ],
)
def test_wrong_requests_are_refused(body: dict[str, object], status: int, learning: Running) -> None:
    found = checked(learning, **body)
    assert found.status_code == status, found.text
    if status != 200:
        assert "\n" not in found.json()["error"]["message"]


@pytest.mark.parametrize(("path", "status"), [("99", 404), ("x", 400), ("3?student=" + "x" * 65, 400)])
def test_a_lesson_that_does_not_exist_is_not_found(path: str, status: int, learning: Running) -> None:
    assert httpx2.get(f"{learning.address}/v1/lessons/{path}").status_code == status


def test_without_the_option_there_are_no_lessons(server: Running) -> None:
    assert httpx2.get(f"{server.address}/v1/lessons").json() == {"object": "list", "is_on": False, "data": []}
    for found in (httpx2.get(f"{server.address}/v1/lessons/3"), checked(server)):
        assert found.status_code == 404
        assert "--learn" in found.json()["error"]["message"]


def test_other_origins_are_refused(learning: Running) -> None:
    origin = {"Origin": "http://elsewhere.example"}
    assert httpx2.get(f"{learning.address}/v1/lessons", headers=origin).status_code == 403
    asked = {"lesson": 3, "exercise": "5", "answer": "1"}
    refused = httpx2.post(f"{learning.address}/v1/lessons/check", json=asked, headers=origin)
    assert refused.status_code == 403


def test_lessons_are_read_and_graded_by_a_thread_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    monkeypatch.setattr(
        lessons, "page_parts", lambda one: names.append(threading.current_thread().name) or iter(())
    )
    monkeypatch.setattr(lessons, "typed_value", lambda text: names.append(threading.current_thread().name))
    found = Lessons(True)
    run_async(found.page(3, ""))
    run_async(found.page(3, ""))  # which is kept
    run_async(found.check(3, "", "5", "1"))
    assert len(names) == 2 and all(name.startswith("chainrule-lessons") for name in names)
    monkeypatch.setattr(lessons, "MOST_WAITING", 0)
    with pytest.raises(BusyError):
        run_async(found.page(3, ""))


def test_a_model_is_needed_without_lessons(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve"])
    assert ended.value.code == 2
    assert "chainrule serve --learn" in capsys.readouterr().err


def test_a_card_shows_what_the_library_computes(learning: Running) -> None:
    def shown(**body: object) -> httpx2.Response:
        return httpx2.post(f"{learning.address}/v1/lessons/card", json={"lesson": 4, "card": 1, **body}, timeout=60)

    assert shown(values={"k": 0.5}).json() == {"numbers": cr.lesson(4).show_card(1, {"k": 0.5})}
    assert shown(lesson=7, card=2, values={"B": 3}).json()["svg"].startswith("<svg")
    refused = [
        {"card": 2},
        {"values": {"k": 9}},
        {"values": {"x": 1}},
        {"values": {"k": "1; import os"}},
        {"card": 0},
    ]
    for body in refused:
        found = shown(**body)
        assert found.status_code == 400 and "\n" not in found.json()["error"]["message"], body
    assert shown(lesson=99).status_code == 404


# -- the view ---------------------------------------------------------------------------------------------


@pytest.fixture
def opened(browser: Any, learning: Running) -> Iterator[Opened]:
    found = Opened(browser, learning, width=390)
    yield found
    found.close()


def test_a_lesson_is_found_answered_and_remembered(opened: Opened) -> None:
    page = opened.go("learn")
    assert opened.violations() == []
    page.get_by_label("Student").fill("ann")
    opened.until("document.querySelector('.lessons a').hash.includes('student=ann')")
    page.click(".lessons a:has-text('Counting')")
    page.wait_for_selector(".exercise")
    assert "student ann" in opened.text("main")
    # by keyboard alone: the answer, Enter, a hint
    right, one = solutions(3, "ann"), cr.lesson(3, "ann")
    first, second = (page.locator(".exercise").nth(i) for i in range(2))
    wrong = one.graders["1"].value(one.graders["1"].wrong[0]["value"])
    first.get_by_label("Your answer").focus()
    page.keyboard.type(str(wrong))
    page.keyboard.press("Enter")
    page.wait_for_selector(".grade.wrong")
    assert first.locator(".grade").inner_text() == f"✗ Wrong: {one.check('1', wrong).message}"
    page.keyboard.press("Control+A")
    page.keyboard.type(str(right["answer_1"]))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(".grade.right")
    second.get_by_role("button").click()
    page.wait_for_selector(".grade.not-yet")
    assert "answers.py" in page.locator(".exercise").nth(3).inner_text()
    page.reload()
    opened.settled("learn")
    assert first.get_by_label("Your answer").input_value() == str(right["answer_1"])
    assert first.locator(".grade").inner_text() == "✓ Right."
    page.click("text=All lessons")
    page.wait_for_selector(".lessons li:has-text('1 of 6 exercises right')")


def test_what_cannot_be_graded_is_said(opened: Opened) -> None:
    page = opened.go("learn", lesson=3)
    page.locator(".exercise input").first.fill("1/0")
    page.keyboard.press("Enter")
    opened.until("document.getElementById('status').textContent === '1/0 divides by 0'")
    opened.wrong.clear()  # a browser tells of every answer that is an error
    opened.go("learn", lesson=99)
    assert opened.text("#status").startswith("there is no lesson 99")
    opened.wrong.clear()


def test_a_view_opens_between_the_paragraphs(opened: Opened) -> None:
    page = opened.go("learn", lesson=3)
    page.locator("a[data-view^='write?model=toy']").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".panel .next li")
    assert opened.script("document.activeElement.className") == "panel"
    assert page.locator(".panel .next .figure").all_inner_texts() == ["50.0%", "50.0%"]
    assert page.locator(".panel select").input_value() == "toy"
    page.get_by_label("Top-k, exactly").fill("1")  # the sliders of the view work here as well
    opened.until("document.querySelectorAll('.panel .next .cut').length === 1")
    assert opened.violations() == []
    page.click(".panel button:has-text('Write')")  # a step, which draws the view anew inside the lesson
    page.wait_for_selector(".panel [data-stop]")
    page.locator("a[data-view^='inside']").click()
    page.wait_for_selector(".panel .ladder")
    assert page.locator(".panel").count() == 1 and opened.params()["lesson"] == "3"
    page.get_by_role("button", name="Close").click()
    assert page.locator(".panel").count() == 0
    assert opened.script("document.activeElement.dataset.view").startswith("inside")
    page.locator("a[data-view^='read']").click()
    page.click("text=Open by itself")
    opened.settled("read")
    assert opened.params()["text"] == "i love mice"


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_sliders_of_a_card_move_its_numbers_and_its_picture(
    browser: Any, learning: Running, width: int, scheme: str
) -> None:
    opened = Opened(browser, learning, width, scheme)
    page = opened.go("learn", lesson=7)
    dials, tree = (
        page.get_by_role("region", name=name) for name in ("The dials of a sampler", "The tree of a beam")
    )
    tree.scroll_into_view_if_needed()
    image = tree.locator("figure[aria-busy=false] img")
    image.wait_for()
    assert image.evaluate("one => one.decode().then(() => one.naturalWidth)") > 200
    first = image.get_attribute("src")
    assert image.get_attribute("alt") == "The tree of a beam search: B = 2"
    tree.get_by_role("slider").focus()
    page.keyboard.press("ArrowRight")
    tree.locator("img[alt$='B = 3']").wait_for()
    assert image.get_attribute("src") != first
    dials.scroll_into_view_if_needed()
    dials.get_by_label("T, exactly").fill("0.1")
    opened.until("document.querySelector('.textbook .figure')?.textContent === '1'")
    names = ["be", "</s>", "to", "so", "the", "a", "in", "yield", "my", "for", "all others"]
    assert dials.locator(".name").all_inner_texts() == names
    assert opened.violations() == []
    opened.close()


def test_a_lesson_says_how_to_get_a_model_that_is_missing(opened: Opened) -> None:
    page = opened.go("learn", lesson=3)
    opened.script("document.querySelector('a[data-view]').dataset.view = 'translate'")
    page.locator("a[data-view]").first.click()
    page.wait_for_selector(".panel .command")
    assert "chainrule train seq2seq" in opened.text(".panel")


def test_every_link_to_a_view_opens_it_with_its_model(opened: Opened) -> None:
    linked = [number for number, path in lesson_paths().items() if VIEW_LINK.search(path.read_text("utf-8"))]
    assert len(linked) >= 4
    for number in linked:
        page = opened.go("learn", lesson=number)
        for link in page.locator("a[data-view]").all():
            link.click()
            page.wait_for_selector(".panel .lead")
            shown, state = link.get_attribute("data-view").split("?")
            page.wait_for_selector(f".panel[aria-label^='{shown.capitalize()}']")
            if "model" in parse_qs(state):
                model = page.locator(".panel select").first
                assert [model.input_value()] == parse_qs(state)["model"]
            assert opened.script("document.documentElement.scrollWidth") <= 390
            assert page.locator("#status.wrong").count() == 0
