"""GGUF files: what was written is read again, and llama.cpp writes the same greedy text."""

from __future__ import annotations

import resource
import struct
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import chainrule as cr
from chainrule.errors import ForeignFileError, SettingsError, TokenizerError
from chainrule.interop.conversion import import_model
from chainrule.interop.gguf import write_gguf
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.char import ByteTokenizer

from .conftest import small

gguf = pytest.importorskip("gguf", reason="gguf is not installed")
PROMPTS = ["The value of", "import this\n  and  that\n\n", ""]


def test_there_and_back(bpe: Tokenizer, tmp_path: Path) -> None:
    lm = small(bpe, preset="llama", kv_heads=2)
    assert write_gguf(lm, tmp_path / "m.gguf") == "llama"
    back = import_model(tmp_path / "m.gguf")
    for prompt in PROMPTS:
        assert back.tokenizer.encode(prompt).tolist() == lm.tokenizer.encode(prompt).tolist()
        ours, theirs = (cr.generate(model, prompt, cr.Greedy(), max_tokens=12, heal=False) for model in (lm, back))
        assert ours == theirs
    back.save(tmp_path / "model")
    assert cr.load(tmp_path / "model").log_prob("The\n") == pytest.approx(back.log_prob("The\n"), rel=1e-6)


@pytest.mark.parametrize(
    "design", [{"preset": "llama", "kv_heads": 2}, {"preset": "llama", "qk_norm": True}], ids=str
)
def test_llama_cpp_writes_the_same(bpe: Tokenizer, tmp_path: Path, design: dict[str, Any]) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python, the peer, is not installed")
    # llama.cpp's kernels want rows of 32 numbers
    lm = small(bpe, **design, width=128, hidden=160)
    write_gguf(lm, tmp_path / "m.gguf")
    peer = llama_cpp.Llama(str(tmp_path / "m.gguf"), n_ctx=48, verbose=False, type_k=0, type_v=0)
    try:
        for prompt in PROMPTS:
            ids = peer.tokenize(prompt.encode(), add_bos=True)
            assert ids == [lm.tokenizer.eos, *lm.tokenizer.encode(prompt).tolist()]
            ours = cr.generate(lm, prompt, cr.Greedy(), max_tokens=12, heal=False)[len(prompt) :]
            made = list(islice(peer.generate(ids, temp=0.0, top_k=1), 12))
            assert lm.tokenizer.decode(made) == ours
    finally:
        peer.close()


def test_a_full_disk_names_the_file(bpe: Tokenizer, tmp_path: Path) -> None:
    lm, path, before = small(bpe, preset="llama"), tmp_path / "m.gguf", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(OSError, match=r"could not be written whole .* is the disk full") as caught:
            write_gguf(lm, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError) as caught:
        write_gguf(lm, "/dev/full")
    assert caught.value.filename == "/dev/full"


def test_what_cannot_be_written(bpe: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="has activation=swiglu, this network activation=relu2"):
        write_gguf(small(bpe, preset="fast"), tmp_path / "m.gguf")
    with pytest.raises(TokenizerError, match="takes byte-level BPE, not byte tokens"):
        write_gguf(small(ByteTokenizer(), preset="llama"), tmp_path / "m.gguf")
    assert not list(tmp_path.iterdir())


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.add_block_count(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ForeignFileError, match="the architecture 'mamba' of this GGUF file is not llama"):
        import_model(tmp_path / "m.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF and nothing else")
    with pytest.raises(ForeignFileError, match=r"bad\.gguf: not a GGUF file"):
        import_model(tmp_path / "bad.gguf")


@pytest.mark.parametrize("kind", [gguf.GGUFValueType.STRING, gguf.GGUFValueType.UINT8], ids=lambda kind: kind.name)
def test_a_list_that_is_longer_than_its_file_is_refused_at_once(kind: gguf.GGUFValueType, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    # version 3, no tensor, one value: "a" is a list of 2^40 values, of which there are none
    path.write_bytes(struct.pack("<4sIQQQsIIQ", b"GGUF", 3, 0, 1, 1, b"a", gguf.GGUFValueType.ARRAY, kind, 1 << 40))
    with pytest.raises(
        ForeignFileError, match=r"m\.gguf: not a GGUF file that can be read: it ends inside a value"
    ):
        import_model(path)
