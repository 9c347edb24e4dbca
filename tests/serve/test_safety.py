"""What a server refuses, and how it says so."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import openai
import pytest
import uvicorn
from benchmarks.serve.load import server as started
from fastapi import HTTPException
from tests.serve.serving import Running, running

from chainrule.errors import SettingsError
from chainrule.serve import guard
from chainrule.serve.api.answers import answer_to
from chainrule.serve.models import Models
from chainrule.serve.run import _Server
from chainrule.serve.run import serve as serve_until_stopped


def post(server: Running, path: str, body: object, **headers: str) -> httpx2.Response:
    return httpx2.post(f"{server.address}{path}", json=body, headers=headers, timeout=30)


def error_of(response: httpx2.Response) -> dict[str, object]:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    return error


def test_errors_become_the_exceptions_of_the_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model is called"):
        client.completions.create(model="gpt-5", prompt="x")
    for wrong in (
        {"n": 9},
        {"temperature": -1},
        {"stop": ["a", "b", "c", "d", "e"]},
        {"max_tokens": 100_000},
        {"suffix": "end"},
        {"logit_bias": {"dog": 1}},
        {"prompt": [999_999]},
        {"best_of": 2, "n": 3},
        {"best_of": 2, "stream": True},
        {"seed": 2**64},
        {"seed": -(2**63) - 1},
    ):
        with pytest.raises(openai.BadRequestError):
            client.completions.create(**{"model": "ngram", "prompt": "x", **wrong})
    for seed in (2**64 - 1, -(2**63)):
        assert client.completions.create(model="ngram", prompt="x", seed=seed, max_tokens=2).choices


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"prompt": {}}', b'{"n": "many"}', b"\xff\xfe", b'{"prompt": "\\ud800"}']
)
def test_what_is_no_request_is_a_400(server: Running, body: bytes) -> None:
    response = httpx2.post(
        f"{server.address}/v1/completions", content=body, headers={"content-type": "application/json"}
    )
    assert response.status_code == 400
    error_of(response)


def test_unknown_paths_and_methods_are_errors_of_the_same_shape(server: Running) -> None:
    for response, status in (
        (httpx2.get(f"{server.address}/v1/nothing"), 404),
        (httpx2.get(f"{server.address}/v1/completions"), 405),
        (httpx2.get(f"{server.address}/v1/models/../../etc/passwd"), 404),
    ):
        assert response.status_code == status
        error_of(response)


def test_other_hosts_and_origins_are_refused(server: Running) -> None:
    body = {"model": "ngram", "prompt": "the"}
    for headers in (
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"Host": "127.0.0.1.evil.example"},
    ):
        response = post(server, "/v1/completions", body, **headers)
        assert response.status_code == 403
        assert error_of(response)["type"] == "permission_error"
    assert post(server, "/v1/completions", body, Origin=server.address).status_code == 200
    assert post(server, "/v1/completions", body, Host=f"localhost:{server.port}").status_code == 200


def test_hosts_and_origins_are_read_as_they_may_be_written(server: Running) -> None:
    body = {"model": "ngram", "prompt": "the", "max_tokens": 1}
    assert post(server, "/v1/completions", body, Host=f"LocalHost:{server.port}").status_code == 200
    response = post(server, "/v1/completions", body, Origin="http://[::1")
    assert response.status_code == 403 and error_of(response)["type"] == "permission_error"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert b" 400 " in connection.recv(4096).split(b"\r\n")[0]


def test_pages_of_an_origin_that_is_named_may_use_the_server(folders: dict[str, Path]) -> None:
    page, body = "http://localhost:3000", {"prompt": "the", "max_tokens": 1}
    with running([folders["ngram"]], "--allow-origin", "http://LOCALHOST:3000/", key="sesame") as server:
        asked = {"Origin": page, "Access-Control-Request-Method": "POST"}
        before = httpx2.options(f"{server.address}/v1/completions", headers=asked)
        assert before.status_code == 204  # without the key, which a browser does not send yet
        assert before.headers["access-control-allow-origin"] == page
        # clients name their version in headers of their own, as OpenAI's for browsers does
        assert {"Authorization", "*"} <= {*before.headers["access-control-allow-headers"].split(", ")}
        key = {"Authorization": "Bearer sesame"}
        found = post(server, "/v1/completions", body, Origin=page, **key)
        assert found.status_code == 200 and found.headers["access-control-allow-origin"] == page
        assert post(server, "/v1/completions", body, Origin=page).status_code == 401
        for other in ("http://localhost:4000", "https://evil.example"):
            response = post(server, "/v1/completions", body, Origin=other, **key)
            assert "access-control-allow-origin" not in response.headers
    with pytest.raises(SettingsError, match="no address of pages"):
        serve_until_stopped(Models({"ngram": folders["ngram"]}), origins=("*",))


def test_an_error_names_the_field_and_not_the_parser(server: Running) -> None:
    for field, value in (("stop", 5), ("stop", [1]), ("prompt", {"a": 1}), ("logprobs", "many")):
        error = error_of(post(server, "/v1/completions", {"prompt": "x", field: value}))
        assert error["param"] == field and str(error["message"]).startswith(f"{field}: ")
        assert "constrained" not in str(error["message"])
    response = post(server, "/v1/completions", {"prompt": "x", "model": "m" * 900_000})
    assert response.status_code == 404 and len(response.content) < 1000


def test_the_description_has_the_answers_that_come(server: Running) -> None:
    paths = httpx2.get(f"{server.address}/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for operation in methods.values():
            assert "422" not in operation["responses"] and "default" in operation["responses"], path
    assert {"200", "400", "404"} <= set(paths["/v1/completions"]["post"]["responses"])
    assert [*paths["/metrics"]["get"]["responses"]["200"]["content"]] == ["text/plain"]
    assert [*paths["/v1/runs/{name}/chart.svg"]["get"]["responses"]["200"]["content"]] == ["image/svg+xml"]


def test_a_body_over_a_megabyte_is_refused(server: Running) -> None:
    response = post(server, "/v1/completions", {"prompt": "x" * 1_100_000})
    assert response.status_code == 413
    assert error_of(response)["code"] == "request_too_large"

    def pieces() -> object:
        for _ in range(40):
            yield b"x" * 50_000

    # without a length, it is counted as it comes
    response = httpx2.post(f"{server.address}/v1/completions", content=pieces(), timeout=30)
    assert response.status_code == 413


def test_a_header_over_64_kilobytes_is_refused(server: Running) -> None:
    found = post(server, "/v1/completions", {"prompt": "the", "max_tokens": 1}, padding="a" * 60_000)
    assert found.status_code == 200
    refused = post(server, "/v1/completions", {"prompt": "the"}, padding="a" * 70_000)
    assert refused.status_code == 431
    assert "65,536 bytes at most" in str(error_of(refused)["message"])
    with socket.create_connection(("127.0.0.1", server.port), timeout=9) as endless:
        with contextlib.suppress(OSError):  # it is cut off before all of it was sent
            endless.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (1 << 23))
        with contextlib.suppress(ConnectionResetError):
            assert endless.recv(1) == b""


def test_what_a_guard_refuses_before_any_route_sees_it() -> None:
    rules = guard.Rules(key="sesame", origins=frozenset({"http://localhost:3000"}))
    watching: Any = guard.Guard(None, rules, None)  # type: ignore[arg-type]

    def status(**headers: str) -> int | None:
        listed = [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in headers.items())]
        scope = {"type": "http", "method": "GET", "path": "/v1/models", "headers": listed}
        response = watching._refusal(scope)
        return None if response is None else response.status_code

    assert status() == status(authorization="Bearer open") == 401
    assert status(authorization="Bearer sesame") is None
    assert status(authorization="Bearer sesame", origin="http://localhost:3000") is None
    assert status(authorization="Bearer sesame", origin="http://evil.example") == 403
    assert status(**{"content-length": str(guard.MOST_BYTES)}) == 401
    assert status(**{"content-length": str(guard.MOST_BYTES + 1)}) == 413
    assert status(long="x" * guard.MOST_HEADER) == 431


def test_a_second_ctrl_c_ends_a_server_that_drains_and_sigterm_does_not() -> None:
    closed: list[bool] = []
    models: Any = SimpleNamespace(close=lambda: closed.append(True))
    watching: Any = SimpleNamespace(closing=True)

    async def signalled() -> None:
        server = _Server(uvicorn.Config("no app"), watching, models, lambda: None)
        server.handle_exit(signal.SIGTERM, None)
        assert not server.should_exit and not closed
        server.handle_exit(signal.SIGINT, None)
        assert server.should_exit and closed

    asyncio.run(signalled())


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "invalid_request_error"),
        (500, "server_error"),
    ],
)
def test_errors_of_routes_have_the_types_that_clients_know(status: int, kind: str) -> None:
    answer = answer_to(HTTPException(status, "why"))
    assert answer.status_code == status
    assert json.loads(bytes(answer.body))["error"]["type"] == kind


def test_another_address_needs_a_key(folders: dict[str, Path]) -> None:
    with pytest.raises(AssertionError, match="set a key"), running([folders["ngram"]], "--host", "0.0.0.0"):
        pass


def test_a_key_is_asked_for_everywhere_but_health(folders: dict[str, Path]) -> None:
    with running([folders["ngram"]], key="sesame") as server:
        assert httpx2.get(f"{server.address}/health").status_code == 200
        answer = post(server, "/v1/lessons/check", {})
        assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
        for path in ("/v1/models", "/metrics", "/tokenizer_info", "/v1/lessons"):
            assert httpx2.get(f"{server.address}{path}").status_code == 401
            assert (
                httpx2.get(f"{server.address}{path}", headers={"Authorization": "Bearer sesame"}).status_code == 200
            )
        with (
            openai.OpenAI(base_url=f"{server.address}/v1", api_key="wrong", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError),
        ):
            client.completions.create(model="ngram", prompt="x")


def test_headers_that_never_end_are_given_up(folders: dict[str, Path]) -> None:
    """A connection that sends nothing, and one that sends its header too slowly."""
    assert guard.DEADLINE == 10
    with running([folders["ngram"]], deadline=1.5) as server:
        began = time.monotonic()
        slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        slow[1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
        slow[2].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
        for connection in slow:
            connection.settimeout(20)
            while connection.recv(4096):
                pass
            connection.close()
        assert 1 < time.monotonic() - began < 8


def test_a_full_queue_is_told_to_come_again(folders: dict[str, Path]) -> None:
    import threading

    with running([folders["transformer"]], "--queue", "2", "--rows", "1") as server:
        found: list[httpx2.Response] = []

        def ask() -> None:
            found.append(post(server, "/v1/completions", {"prompt": "the", "max_tokens": 120}))

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        statuses = sorted(response.status_code for response in found)
        assert set(statuses) == {200, 429} and len(statuses) == 12
        refused = next(response for response in found if response.status_code == 429)
        assert refused.headers["retry-after"] == "1"
        assert error_of(refused)["code"] == "rate_limit_exceeded"


def test_a_client_that_goes_away_frees_its_row(server: Running) -> None:
    def writing() -> float:
        text = httpx2.get(f"{server.address}/metrics").text
        return float(
            next(line for line in text.splitlines() if line.startswith('chainrule_writing{model="lstm"}')).split()[
                1
            ]
        )

    body = json.dumps(
        {"model": "lstm", "prompt": "the", "max_tokens": 4000, "logit_bias": {"2": -100}, "stream": True}
    )
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    for asked in (body, body.replace('"stream": true', '"stream":false')):
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall((head + asked).encode())
        until = time.monotonic() + 10
        while not writing() and time.monotonic() < until:
            time.sleep(0.01)
        assert writing() == 1
        connection.close()
        gone = time.monotonic()
        while writing():
            assert time.monotonic() - gone < 1.0
            time.sleep(0.02)
    # given up, which is no failure of the server
    while not re.search(r"chainrule_requests_total\{[^}]*\"499\"", httpx2.get(f"{server.address}/metrics").text):
        assert time.monotonic() - gone < 10
        time.sleep(0.02)


def test_answers_carry_a_strict_policy(server: Running) -> None:
    headers = httpx2.get(f"{server.address}/health").headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers


def test_sigterm_lets_streams_end(folders: dict[str, Path]) -> None:
    """Every stream that was open has its end; a request that was sent, and perhaps not read yet, has an answer."""
    with running([folders["lstm"]]) as server:
        body = {"prompt": "the", "max_tokens": 300, "stream": True, "seed": 1}
        with (
            httpx2.Client(timeout=40) as client,
            client.stream("POST", f"{server.address}/v1/completions", json=body) as stream,
        ):
            lines = stream.iter_lines()
            first = next(lines)
            late = [socket.create_connection(("127.0.0.1", server.port), timeout=40) for _ in range(4)]
            content = json.dumps({**body, "max_tokens": 2}).encode()
            head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            for connection in late:
                connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            server.process.terminate()
            rest = [first, *lines]
        assert "data: [DONE]" in rest
        for connection in late:
            with connection, connection.makefile("rb") as answer:
                said = answer.read()
            assert b"[DONE]" in said or b"shutting down" in said
        assert server.process.wait(30) == 0


_SHORT_DRAIN = """
import runpy, time
import chainrule.serve.run as run
run.DRAIN_SECONDS, run._LAST_SECONDS, run._GRACE_SECONDS = 2, 4, 4
{}
runpy.run_module("chainrule", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("stuck", "code"), [("", 0), ("run.uvicorn.Server.shutdown = lambda *given: time.sleep(60)", 1)]
)
def test_sigterm_ends_the_server_in_time(stuck: str, code: int, folders: dict[str, Path]) -> None:
    """A stream that goes on is ended with an error; and an event loop that hangs is not waited for."""
    with started(str(folders["lstm"]), program=("-c", _SHORT_DRAIN.format(stuck))) as (port, process):
        body = {"prompt": "the", "max_tokens": 4096, "n": 8, "logit_bias": {"2": -100}, "stream": True}
        body |= {"logprobs": 20}  # slow
        url = f"http://127.0.0.1:{port}/v1/completions"
        with httpx2.Client(timeout=40) as client, client.stream("POST", url, json=body) as stream:
            chunks = stream.iter_raw()
            said = next(chunks)
            process.terminate()
            began = time.monotonic()
            try:
                said += b"".join(chunks)
            except httpx2.HTTPError:
                assert stuck
        assert process.wait(25) == code
        assert time.monotonic() - began < 25
        assert stuck or b"[DONE]" in said


def test_many_requests_at_once_begin_a_few_at_a_time() -> None:
    """Between them, the event loop sends what others wait for."""

    async def most_in_a_turn() -> list[int]:
        turns, begun, counts = guard._Turns(), 0, []

        async def begin() -> None:
            nonlocal begun
            await turns.take()
            begun += 1

        every = [asyncio.create_task(begin()) for _ in range(50)]
        every[7].cancel()
        while begun < 49:
            before = begun
            await asyncio.sleep(0)
            counts.append(begun - before)
        return counts

    counts = asyncio.run(most_in_a_turn())
    assert sum(counts) == 49 and max(counts) <= 4


def test_a_client_that_leaves_before_its_body_is_read_is_no_error(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{")
    deadline = time.monotonic() + 10
    while 'status="499"' not in (found := httpx2.get(f"{server.address}/metrics").text):
        assert time.monotonic() < deadline, found[:2000]
        time.sleep(0.02)
