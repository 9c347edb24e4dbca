"""curl, and clients that may be installed: lm-evaluation-harness."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from tests.serve.serving import Running

import chainrule as cr


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_gets_a_text_and_a_stream(server: Running, models: dict[str, cr.LanguageModel]) -> None:
    asked = {"model": "ngram", "prompt": "the", "max_tokens": 5, "seed": 1}
    expected = cr.generate_many(models["ngram"], ["the"], max_tokens=5, seed=1)[0].continuation

    def curl(body: dict[str, object]) -> str:
        address = f"{server.address}/v1/completions"
        command = ["curl", "-sN", address, "-H", "Content-Type: application/json", "-d", json.dumps(body)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout

    assert json.loads(curl(asked))["choices"][0]["text"] == expected
    lines = [line for line in curl({**asked, "stream": True}).splitlines() if line]
    assert lines[-1] == "data: [DONE]"
    pieces = [json.loads(line.removeprefix("data: "))["choices"][0]["text"] for line in lines[:-1]]
    assert "".join(pieces) == expected
