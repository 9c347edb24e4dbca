"""The page of the server in a browser: each view by pointer and by keyboard, light and dark, wide and narrow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from tests.serve.opened import Opened
from tests.serve.serving import Running, answer

import chainrule as cr
from chainrule.serve.guard import PAGE_POLICY

PAGE = Path(cr.__file__).parent / "serve" / "page"
TEXT = "the cat sat — naïve dogs\n\na quite unknown log"
STATES = {
    "write": {"model": "ngram", "prompt": "the cat", "n": 12, "seed": 4, "go": 1},
    "read": {"models": "ngram,lstm,words", "text": TEXT, "by": "difference"},
    "tree": {"model": "ngram", "prompt": "the", "width": 3, "n": 5, "step": 5},
    "tokens": {"model": "ngram", "text": TEXT, "step": 3},
    "inside": {"model": "transformer", "text": "the cat sat"},
    "runs": {},
    "learn": {"lesson": 3, "student": "ann"},
    "translate": {"text": "a b c\nc b"},
    "tag": {"text": "the dog sat\na cat ran"},
    "fill": {"text": "the [MASK] sat on the [MASK]"},
}


@pytest.fixture(scope="module")
def server(page_server: Running) -> Running:
    return page_server


@pytest.fixture
def opened(browser: Any, server: Running) -> Iterator[Opened]:
    found = Opened(browser, server)
    yield found
    found.close()


# -- the files --------------------------------------------------------------------------------------------


def test_files_are_served_with_their_types_and_tags(server: Running) -> None:
    types = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
    for path in PAGE.rglob("*.*"):
        found = httpx2.get(f"{server.address}/page/{path.relative_to(PAGE).as_posix()}")
        assert found.content == path.read_bytes()
        assert found.headers["content-type"].startswith(types[path.suffix[1:]])
        assert found.headers["content-security-policy"] == PAGE_POLICY
        again = httpx2.get(str(found.url), headers={"If-None-Match": found.headers["etag"]})
        assert again.status_code == 304 and again.content == b""
    assert httpx2.get(f"{server.address}/").content == (PAGE / "index.html").read_bytes()
    head = httpx2.head(f"{server.address}/")
    assert head.status_code == 200 and head.content == b"" and int(head.headers["content-length"]) > 100
    for path in ("none.js", "%2e%2e/app.py", "..%2fapp.py", "views", "views/", ""):
        assert httpx2.get(f"{server.address}/page/{path}").status_code == 404


# -- every view -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", STATES)
def test_a_view_is_drawn_light_and_dark_wide_and_narrow(view: str, opened: Opened) -> None:
    page = opened.go(view, **STATES[view])
    assert page.inner_text("h1") == view.capitalize()
    assert page.get_attribute(f"nav a[href^='#/{view}']", "aria-current") == "page"
    assert page.query_selector("main .wrong") is None
    assert opened.violations() == []
    light = opened.script("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert opened.script("getComputedStyle(document.body).backgroundColor") != light
    assert opened.violations() == []
    for width in (360, 768):
        page.set_viewport_size({"width": width, "height": 800})
        assert opened.script("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("view", STATES)
def test_the_state_in_the_address_survives_a_reload(view: str, opened: Opened) -> None:
    page = opened.go(view, **STATES[view])
    seen = """document.querySelector('main').innerText + Array.from(
      document.querySelectorAll('main textarea, main select, main input'),
      one => one.type === 'radio' || one.type === 'checkbox' ? one.checked : one.value)"""
    params = opened.kept()
    before = opened.script(seen)
    assert {name: str(value) for name, value in STATES[view].items()}.items() <= params.items()
    page.reload()
    opened.settled(view)
    assert opened.script(seen) == before
    assert opened.kept() == params


def test_dark_follows_the_system_until_the_button_is_pressed(opened: Opened) -> None:
    page = opened.go("tokens")
    colour = "getComputedStyle(document.querySelector('.paper')).backgroundColor"
    light = opened.script(colour)
    page.emulate_media(color_scheme="dark")
    opened.until("document.getElementById('theme').textContent === 'Light'")
    assert opened.script(colour) != light
    page.click("#theme")
    page.reload()
    opened.settled("tokens")
    assert opened.script(colour) == light
    page.emulate_media(media="print")
    assert opened.script("getComputedStyle(document.querySelector('nav')).display") == "none"


def test_a_view_without_models_says_how_to_make_one(opened: Opened) -> None:
    model = {"id": "t", "kind": "tagger", "verb": "tag"}
    body = json.dumps({"object": "list", "data": [model]})
    opened.page.route("**/v1/models", lambda route: route.fulfill(body=body, content_type="application/json"))
    for view, command in (
        ("write", "chainrule train lstm"),
        ("translate", "chainrule train seq2seq"),
        ("fill", "chainrule train masked"),
    ):
        assert command in opened.go(view).inner_text("main")


def test_a_view_that_no_model_can_do_is_marked_with_the_reason(opened: Opened) -> None:
    body = json.dumps({"object": "list", "data": [{"id": "t", "kind": "tagger", "verb": "tag"}]})
    opened.page.route("**/v1/models", lambda route: route.fulfill(body=body, content_type="application/json"))
    page = opened.go("runs")
    off = {link.inner_text(): link.get_attribute("title") for link in page.locator("nav a[aria-disabled]").all()}
    assert set(off) == {"Write", "Read", "Tree", "Translate", "Fill"}
    assert off["Fill"] == "This view needs a masked model, and none is served."
    opened.page.unroute("**/v1/models")
    assert opened.go("tokens").locator("nav a[aria-disabled]").count() == 0


def test_what_has_probability_zero_has_no_bits(opened: Opened) -> None:
    """A model of maximum likelihood gives 0 to a pair of words that it has not seen: JSON has -9999 for ln 0."""

    def impossible(route: Any) -> None:
        found = route.fetch().json()
        if found["model"] == "words":
            found |= {"bits": None, "bits_per_byte": None, "perplexity": None}
            found["tokens"][1] |= {"log_prob": -9999.0, "bits": 9999.0}
        route.fulfill(body=json.dumps(found), content_type="application/json")

    opened.page.route("**/v1/score", impossible)
    page = opened.go("read", models="words,ngram", text="the cat sat")
    totals = page.inner_text("[aria-label=Totals] tbody")
    assert "not possible for this model" in totals.splitlines()[0]
    page.locator("[data-word='1']").first.hover()
    assert "words not possible for this model, ngram " in page.inner_text(".readout")
    assert "not possible for words" in page.inner_text(".spans:nth-child(2)")
    assert "∞" not in page.inner_text("main")
    opened.page.route(
        "**/v1/inside",
        lambda route: route.fulfill(
            body=json.dumps(route.fetch().json() | {"probability": 0.0, "bits": 9999.0}),
            content_type="application/json",
        ),
    )
    page = opened.go("inside", model="ngram", text="the cat")
    assert "a probability of 0: it is not possible for this model." in page.inner_text(".sentence")


def test_tokens_that_cannot_come_next_are_not_listed(opened: Opened) -> None:
    def one(route: Any) -> None:
        found = route.fetch().json()
        for token in found["tokens"][1:]:
            token |= {"p": 0.0, "q": 0.0}
        route.fulfill(body=json.dumps(found | {"kept": 1}), content_type="application/json")

    opened.page.route("**/v1/next", one)
    page = opened.go("write", model="ngram", prompt="the")
    page.wait_for_selector(".next li")
    assert page.locator(".next li").count() == 1
    assert "One token may be chosen" in page.inner_text("main")


@pytest.mark.parametrize(("view", "model"), [("fill", "filler"), ("tag", "tagger")])
def test_inside_leads_from_other_models_to_their_view(view: str, model: str, opened: Opened) -> None:
    page = opened.go("inside", model=model)
    assert page.locator("main .problem").count() == 0
    assert page.inner_text(".found a") == view.capitalize()
    page.click(".found a")
    opened.settled(view)
    assert opened.params()["model"] == model


@pytest.mark.parametrize("view", ["read", "tokens"])
def test_tables_are_not_cut_on_a_phone(view: str, opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 390, "height": 844})
    page = opened.go(view, **STATES[view])
    page.wait_for_selector("main .scroll table")
    cut = "Array.from(document.querySelectorAll('main .scroll'), one => one.scrollWidth - one.clientWidth)"
    assert max(opened.script(cut)) <= 0
    above = "document.getElementById('theme').getBoundingClientRect().bottom"
    assert opened.script(f"{above} < document.querySelector('nav a').getBoundingClientRect().top")


def test_a_key_is_asked_for_once(browser: Any, server: Running) -> None:
    opened = Opened(browser, server)

    def guarded(route: Any) -> None:
        if route.request.headers.get("authorization") == "Bearer secret":
            route.continue_()
        else:
            error = {"error": {"message": "a key is needed"}}
            route.fulfill(status=401, body=json.dumps(error), content_type="application/json")

    opened.page.route("**/v1/**", guarded)
    opened.page.goto(f"{server.address}/#/write")
    opened.page.wait_for_selector("dialog[open]")
    assert opened.text("#key-wrong") == ""
    for key, said in (("", "Type the key first."), ("wrong", "The server did not accept that key.")):
        opened.page.fill("#key-value", key)
        opened.page.keyboard.press("Enter")
        opened.page.wait_for_selector(f"dialog[open] >> text={said}")
    opened.page.fill("#key-value", "secret")
    opened.page.keyboard.press("Enter")
    opened.settled("write")
    opened.page.wait_for_selector(".next li")
    opened.page.reload()
    opened.settled("write")  # the key is known to this tab
    opened.context.close()
    opened = Opened(browser, server)
    opened.page.route("**/v1/**", guarded)
    opened.page.goto(f"{server.address}/#/write")
    opened.page.wait_for_selector("dialog[open]")
    opened.page.keyboard.press("Escape")
    opened.page.wait_for_selector("#status.wrong")
    assert opened.text("#status") == "This server needs a key. Reload the page to be asked for it again."
    opened.context.close()


# -- write ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ngram", "words", "lstm"])
def test_a_text_streams_in_token_by_token(name: str, opened: Opened, server: Running) -> None:
    page = opened.go("write", model=name, prompt="the naïve cat", n=14, seed=7, t=0.8, p=0.95, go=1)
    asked = {"temperature": 0.8, "top_p": 0.95, "max_tokens": 14, "seed": 7, "logprobs": 8, "echo": True}
    expected = answer(server, "/v1/completions", model=name, prompt="the naïve cat", **asked)["choices"][0]
    shown = "".join(opened.tokens()).replace("■", "").replace("↵", "")
    assert shown == expected["text"]
    bits = opened.script(
        "Array.from(document.querySelectorAll('.paper [data-stop]'), s => s.getAttribute('aria-label'))"
    )
    assert all(" bits, rank " in one for one in bits)
    assert page.inner_text("#status") != ""
    colours = "Array.from(document.querySelectorAll('.paper [data-stop]'), s => s.style.getPropertyValue('--a'))"
    before = opened.script(colours)
    page.check("input[value=rank]")
    assert opened.script(colours) != before
    assert "rank" in page.inner_text(".legend")


def test_another_token_begins_a_branch_and_back_returns(opened: Opened) -> None:
    page = opened.go("write", model="ngram", prompt="the cat", n=10, seed=2, t=1, go=1)
    first = opened.tokens()
    page.locator(".paper [data-stop]").nth(1).hover()
    page.wait_for_selector(".card:not([hidden])")
    names = page.locator(".card li .name").all_inner_texts()
    assert len(names) == 8
    chosen = next(i for i, name in enumerate(names) if name.startswith("␣") and name != "␣cat")
    page.locator(".card li button").nth(chosen).click()
    opened.until(
        "decodeURIComponent(location.hash.replaceAll('+', ' ')).includes('prompt=the " + names[chosen][1:] + "')"
    )
    opened.settled("write")
    assert "".join(opened.tokens()).startswith(f"the {names[chosen][1:]}")
    page.go_back()
    opened.until("location.hash.includes('seed=2')")
    opened.settled("write")
    assert opened.tokens() == first


def test_writing_can_be_stopped(opened: Opened) -> None:
    opened.page.goto(
        f"{opened.address}/#/write?" + urlencode({"model": "transformer", "n": 4000, "go": 1, "seed": 1})
    )
    opened.page.wait_for_selector(".paper [data-stop]:nth-child(5)")
    opened.page.click("text=Stop")
    opened.page.wait_for_selector(".view[data-writing=no]")
    assert opened.page.inner_text("#status").startswith("Stopped")
    assert 5 <= len(opened.tokens()) < 4000
    assert opened.page.inner_text("button.main") == "Write"


def test_an_error_of_writing_is_not_overwritten(opened: Opened) -> None:
    answers = [
        {"status": 400, "body": json.dumps({"error": {"message": "no such prompt"}})},
        {
            "status": 200,
            "body": 'data: {"error": {"message": "it broke"}}\n\n',
            "content_type": "text/event-stream",
        },
    ]
    opened.page.route("**/v1/completions", lambda route: route.fulfill(**answers.pop(0)))
    for said in ("no such prompt", "it broke"):
        opened.go("write", model="ngram", prompt="the", go=1, seed=1)
        assert opened.text("#status.wrong") == said
    opened.page.unroute("**/v1/completions")
    opened.page.route(
        "**/v1/**", lambda route: route.abort() if "models" not in route.request.url else route.continue_()
    )
    opened.go("write", model="ngram", prompt="the", go=1, seed=1)
    assert opened.text("#status.wrong") == "The server does not answer. Is it still running?"
    opened.wrong.clear()  # the browser reports failed requests too


def test_values_of_the_address_are_kept_in_bounds(opened: Opened) -> None:
    page = opened.go("write", model="ngram", prompt="the", t=1e9, k=-5, p="x", n="12.6", seed=-3, repeat=0, go=1)
    assert page.query_selector("#status.wrong") is None
    values = [
        page.input_value(f"input[aria-label='{name}, exactly']") for name in ("Temperature", "Top-k", "Top-p")
    ]
    assert values == ["2", "0", "0.95"]
    assert page.input_value("input[aria-label='Tokens, exactly']") == "13"
    opened.go("tree", model="ngram", prompt="the", width=99, n="no", step=-1)
    assert opened.page.query_selector("#status.wrong") is None


def test_seed_stop_and_penalties_reach_the_server(opened: Opened, server: Running) -> None:
    page = opened.go("write", model="ngram", prompt="the cat", n=12, t=1, p=1)
    page.click("summary:has-text('Seed, stop')")
    page.get_by_label("Seed", exact=True).fill("11")
    page.get_by_label("Stop before", exact=False).fill(" on")
    page.fill("input[aria-label='Repetition, exactly']", "1.5")
    with page.expect_request("**/v1/completions") as sent:
        page.click("button.main")
    body = sent.value.post_data_json
    assert (body["seed"], body["stop"], body["repetition_penalty"]) == (11, " on", 1.5)
    opened.until("location.hash.includes('keeps=1')")
    opened.settled("write")
    first, said = opened.tokens(), opened.text("#status")
    assert said.endswith("seed 11.") and "tokens/s" in said
    shown = "".join(first).replace("■", "").replace("↵", "")
    assert shown == answer(server, "/v1/completions", **{**body, "stream": False})["choices"][0]["text"]
    page.wait_for_timeout(500)  # a click just after the end is taken for a late one on Stop
    with page.expect_request("**/v1/completions"):  # the same once more
        page.click("button.main")
    page.wait_for_selector(".view[data-writing=no]")
    assert opened.tokens() == first


def test_bars_are_as_long_as_their_probabilities(opened: Opened) -> None:
    page = opened.go("fill", text="the [MASK] sat")
    for row in page.locator("section .next button").all():
        share = float(row.locator(".figure").inner_text().rstrip("%"))
        drawn = float(row.locator(".bar").evaluate("one => one.style.getPropertyValue('--w')").rstrip("%"))
        assert drawn == pytest.approx(share, abs=0.06)


def test_sliders_redraw_what_may_come_next(opened: Opened) -> None:
    page = opened.go("write", model="ngram", prompt="the", p=1, t=1)
    page.wait_for_selector(".next li")
    assert page.locator(".next .cut").count() == 0
    page.get_by_label("Top-k", exact=False).first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    opened.until("document.querySelectorAll('.next .cut').length === 13")
    opened.until("location.hash.includes('k=3')")
    assert page.input_value("input[aria-label='Top-k, exactly']") == "3"
    page.locator(".next li button").first.click()  # the likeliest token is added, and the text goes on
    opened.settled("write")
    assert len(opened.params()["prompt"]) > len("the")


def test_write_works_by_keyboard_alone(opened: Opened) -> None:
    page = opened.go("write", model="ngram", n=6, t=1)

    def tab_to(found: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if opened.script(f"document.activeElement.matches({json.dumps(found)})"):
                return
        raise AssertionError(f"{found} is not reached by Tab")

    tab_to("textarea")
    page.keyboard.press("Control+A")
    page.keyboard.type("a dog")
    tab_to("button.main")
    page.keyboard.press("Enter")
    opened.until("location.hash.includes('go=1')")
    opened.settled("write")
    assert opened.script("document.activeElement.matches('button.main')")  # the focus is not lost
    tab_to("[data-stop]")
    page.keyboard.press("ArrowRight")
    assert opened.script("document.querySelectorAll('[data-stop][tabindex=\"0\"]').length") == 1
    page.keyboard.press("Enter")
    assert opened.script("document.activeElement.closest('.card') !== null")
    page.keyboard.press("Escape")
    assert opened.script("document.activeElement.matches('[data-stop]')")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    former = opened.params()["seed"]
    page.keyboard.press("Enter")
    opened.until(f"!location.hash.includes('seed={former}')")
    opened.settled("write")
    assert opened.params()["prompt"].startswith("a")


# -- read -------------------------------------------------------------------------------------------------


def test_words_of_two_models_are_aligned_and_add_up(opened: Opened, server: Running) -> None:
    names = ["ngram", "lstm", "words"]
    page = opened.go("read", models=",".join(names), text=TEXT)
    papers = page.query_selector_all(".paper")
    said = [
        paper.eval_on_selector_all(
            "[data-stop]", "all => all.map(s => [s.textContent, s.getAttribute('aria-label')])"
        )
        for paper in papers
    ]
    assert [word for word, _ in said[0]] == [word for word, _ in said[1]] == [word for word, _ in said[2]]
    assert "".join(word for word, _ in said[0]).replace("↵", "") == f"{TEXT}■"
    code = """async ([name, text]) => {
      const {wordsOf, bitsOfWords} = await import('/page/views/read.js');
      const {post} = await import('/page/api.js');
      const score = await post('/v1/score', {model: name, text});
      return bitsOfWords(wordsOf(text), score.tokens);
    }"""
    for text in (TEXT, "a\n", "the cat\n\nsat 日本語", "  two  spaces "):
        for name in names:
            bits = page.evaluate(code, [name, text])
            assert sum(bits) == pytest.approx(answer(server, "/v1/score", model=name, text=text)["bits"], abs=1e-6)
    rows = page.locator("tbody tr").all_inner_texts()
    for row, name in zip(rows, names, strict=True):
        found = answer(server, "/v1/score", model=name, text=TEXT)
        assert row.split("\t")[:3] == [name, str(len(found["tokens"])), f"{found['bits']:,.1f}"]


def test_read_says_what_it_does_not_read(opened: Opened) -> None:
    page = opened.go("read", models="words", text="the cat " * 2600)
    assert "Of 20,800 characters only the first 20,000" in opened.text("main .problem")
    assert len(page.input_value("textarea")) == 20000
    page.fill("textarea", "the cat")
    page.wait_for_selector(".view[data-reading=no]")
    opened.until("document.querySelector('#status').textContent === 'One model has read 7 bytes.'")
    assert not page.locator("main .problem").is_visible()
    # while another text is read, the figures of this one do not look like its own
    waiting: list[Any] = []

    def hold(route: Any) -> None:
        waiting.append(route)

    page.route("**/v1/score", hold)
    page.fill("textarea", "the dog")
    page.wait_for_selector(".results[aria-busy=true]")
    opened.until("document.querySelector('#status').textContent === 'Reading …'")
    while not waiting:
        page.wait_for_timeout(20)
    waiting.pop().continue_()
    page.unroute("**/v1/score")
    page.wait_for_selector(".results:not([aria-busy])")
    for change, said in (
        (lambda: page.fill("textarea", ""), "There is nothing to read yet: type a text."),
        (lambda: page.uncheck("input[value=words]"), "Choose a model to read the text."),
    ):
        change()
        opened.until(f"document.querySelector('#status').textContent === '{said}'")
        assert not page.locator(".results").is_visible()


def test_the_spans_where_models_differ_are_the_librarys(opened: Opened, server: Running) -> None:
    """As report/surprise.py finds them."""
    import numpy as np

    from chainrule.report.surprise import best_spans

    page = opened.go("read", models="ngram,lstm", text=TEXT)
    rng = np.random.default_rng(0)
    code = "async (given) => (await import('/page/views/read.js')).bestSpans(...given)"
    for size in (1, 7, 40):
        better, other = rng.exponential(5, size), rng.exponential(5, size)
        lines = np.cumsum(rng.random(size) < 0.2)
        found = page.evaluate(code, [better.tolist(), other.tolist(), lines.tolist(), 4])
        expected = [one for one in best_spans(better, other, lines, 4) if one.bits_of_other - one.bits > 0.05]
        assert [(one["first"], one["last"]) for one in found] == [(one.first, one.last) for one in expected]
    titles = page.locator(".spans h2").all_inner_texts()
    assert titles == ["Where ngram beats lstm most", "Where lstm beats ngram most"]
    page.locator(".spans button").first.click()
    assert page.locator(".paper .marked").count() >= 2
    assert re.search(r"ngram [\d.]+ bits", page.inner_text(".readout"))


# -- tree, tokens -----------------------------------------------------------------------------------------


def test_the_tree_grows_step_by_step(opened: Opened, server: Running) -> None:
    page = opened.go("tree", model="transformer", prompt="the", width=3, n=4)
    assert page.locator(".node.best").count() == 4  # it opens with the whole tree
    page = opened.go("tree", model="transformer", prompt="the", width=3, n=4, step=1)
    nodes = answer(server, "/v1/beam", model="transformer", prompt="the", width=3, max_tokens=4)["nodes"]
    step = page.get_by_role("button", name="Step", exact=True)
    for number in range(1, 5):
        seen = [node for node in nodes if node["step"] < number]
        assert page.locator(".node:not(.root)").count() == len(seen)
        assert page.locator(".node.dropped").count() == sum(not node["kept"] for node in seen)
        assert page.locator(".kept li").count() == 3
        if number < 4:
            step.click()
    assert step.is_disabled()
    assert page.locator(".node.best").count() == 4
    assert page.locator(".text-card").count() == 3
    page.get_by_role("button", name="Back", exact=True).click()
    assert page.locator(".node.best").count() == 0
    opened.until("location.hash.includes('step=3')")
    page.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_selector(".node.best")


def test_tokens_follow_what_is_typed(opened: Opened, server: Running) -> None:
    page = opened.go("tokens", model="ngram", text="the")
    page.fill("textarea", "a naïve café")
    opened.until("document.querySelector('.paper').textContent === 'a naïve café'")
    found = answer(server, "/tokenize", model="ngram", prompt="a naïve café")
    opened.until(f"document.querySelector('.readout').textContent.startsWith('{found['count']} tokens')")
    assert page.text_content(".ids").split() == [str(token) for token in found["tokens"]]
    page.wait_for_selector(".view[data-tokenizing=no]")
    names = "Array.from(document.querySelectorAll('.merge-words .token'), s => s.textContent)"
    assert opened.script(names) == found["token_strs"]
    back = page.get_by_role("button", name="Back", exact=True)
    while back.is_enabled():
        back.click()
    assert len(opened.script(names)) == len("a naïve café".encode())
    page.get_by_role("button", name="Step", exact=True).click()
    assert page.locator(".merge-words .fresh").count() >= 1
    page.click("th button:text('words')")
    opened.until("document.querySelector('.merges').hidden")
    opened.until("location.hash.includes('model=words')")


def test_each_token_of_a_character_has_a_block(opened: Opened, server: Running) -> None:
    page = opened.go("tokens", model="ngram", text="a 😀 b")
    found = answer(server, "/tokenize", model="ngram", prompt="a 😀 b")
    blocks = page.locator(".paper [data-stop]")
    assert blocks.count() == found["count"]
    assert page.text_content(".paper") == "a 😀 b"
    said = [one.get_attribute("aria-label") or "" for one in blocks.all()]
    assert [one.split(" (id ")[1].split(")")[0] for one in said] == [str(token) for token in found["tokens"]]
    assert sum("of 4 of" in one for one in said) == 4


# -- tasks ------------------------------------------------------------------------------------------------


def test_a_translation_has_its_alignment(opened: Opened, server: Running) -> None:
    page = opened.go("translate")
    page.fill("textarea", "a b c")
    page.click("button.main")
    page.wait_for_selector(".view[data-translating=no]")
    found = answer(server, "/v1/translate", model="translator", text="a b c", alignments=True)["data"][0]
    assert page.inner_text(".results .paper") == (found["text"] or "(nothing)")
    assert page.locator(".alignment td.shade").count() == sum(map(len, found["alignment"]["weights"]))


def test_words_have_their_tags(opened: Opened, server: Running) -> None:
    page = opened.go("tag", text="the dog sat")
    words = answer(server, "/v1/tag", model="tagger", text="the dog sat")["data"][0]["words"]
    assert page.locator(".paper .tag-name").all_inner_texts() == [one["tag"] for one in words]
    page.locator(".paper .tag").nth(1).hover()
    assert page.inner_text(".readout").startswith(f"dog: {words[1]['tag']}, ")


def test_a_gap_is_filled_and_opened_again(opened: Opened) -> None:
    page = opened.go("fill", text="the [MASK] sat on the [MASK]")
    filling = page.locator("section .next").nth(1).locator("button .name").first.inner_text()
    page.locator("section .next").nth(1).locator("button").first.click()
    opened.until("document.querySelectorAll('section .next').length === 1")
    assert page.input_value("textarea") == f"the [MASK] sat on the {filling}"
    page.go_back()
    opened.until("document.querySelectorAll('section .next').length === 2")


def test_the_ring_of_a_chosen_token_covers_no_letter_beside_it(opened: Opened) -> None:
    opened.go("inside", model="ngram", text="the cat sat")
    chosen = "document.querySelector('.strip.joined .tk[aria-pressed=true]')"
    room = f"{chosen}.getBoundingClientRect().left - {chosen}.previousElementSibling.getBoundingClientRect().right"
    assert opened.script(room) >= 2  # the width of the ring


def test_all_lines_of_a_text_are_seen_in_its_field(opened: Opened) -> None:
    opened.go("tokens", model="ngram", text="\n".join("abcdefg"))
    field = "document.querySelector('textarea')"
    assert opened.script(f"{field}.scrollHeight <= {field}.clientHeight")


def test_frames_of_pictures_are_no_wider_than_the_pictures(opened: Opened) -> None:
    for view, picture in (("tree", ".tree-picture"), ("inside", ".way")):
        opened.go(view, **STATES[view])
        frame = f"document.querySelector('{picture}')"
        empty = f"{frame}.clientWidth - {frame}.querySelector('svg').getBoundingClientRect().width"
        assert opened.script(empty) < 30
