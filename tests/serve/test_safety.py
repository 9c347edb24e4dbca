"""What a server refuses, and how it says so."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path

import httpx2
import openai
import pytest
from tests.serve.serving import Running, running

from chainrule.serve import guard


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
    ):
        with pytest.raises(openai.BadRequestError):
            client.completions.create(**{"model": "ngram", "prompt": "x", **wrong})


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


def test_another_address_needs_a_key(folders: dict[str, Path]) -> None:
    with pytest.raises(AssertionError, match="set a key"), running([folders["ngram"]], "--host", "0.0.0.0"):
        pass


def test_a_key_is_asked_for_everywhere_but_health(folders: dict[str, Path]) -> None:
    with running([folders["ngram"]], key="sesame") as server:
        assert httpx2.get(f"{server.address}/health").status_code == 200
        for path in ("/v1/models", "/metrics", "/tokenizer_info"):
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
