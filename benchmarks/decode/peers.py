"""Other programs that write text: transformers, gpt-fast and llama.cpp, with networks of the same sizes.

Each function returns a side: a function that writes the texts once and returns the number of their tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import torch

from benchmarks.harness import is_installed, load_module
from benchmarks.neural.lab import Lab
from chainrule.networks.config import padded_size
from chainrule.networks.transformer.config import TransformerConfig

Write: TypeAlias = Callable[[], int]
PROMPT = (3, 4, 5)


@dataclass(frozen=True)
class Task:
    """A Transformer, and the size of the texts that it writes."""

    name: str
    config: TransformerConfig
    vocab_size: int
    rows: int
    new_tokens: int
    prompt: tuple[int, ...] = PROMPT


def precision(lab: Lab) -> str:
    """Return the name of the dtype that all sides compute in."""
    return "bfloat16" if lab.on_gpu else "float32"


@cache
def has_peer(name: str, module: str) -> bool:
    """Return True if a peer is installed; if not, print once that it is left out."""
    return is_installed(name, module)


def causal_model(lab: Lab, task: Task) -> Any:
    """Return a model of transformers with the sizes of the task."""
    import transformers

    config, is_llama = task.config, task.config.preset == "llama"
    design = transformers.LlamaConfig if is_llama else transformers.GPT2Config
    # GPT2Config knows these names too
    sizes: dict[str, Any] = {
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "max_position_embeddings": config.window,
        "vocab_size": task.vocab_size,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if is_llama:
        sizes |= {"intermediate_size": config.hidden, "num_key_value_heads": config.kv_heads}
    model: Any = transformers.AutoModelForCausalLM.from_config(design(**sizes))
    return model.to(lab.device, getattr(torch, precision(lab))).eval()


def by_transformers(lab: Lab, task: Task, how: Mapping[str, Any]) -> Write:
    """Return the side of `generate` of transformers, with these options of it."""
    model = causal_model(lab, task)
    prompts_BT = torch.tensor([task.prompt] * task.rows, device=lab.device)
    options = {"attention_mask": torch.ones_like(prompts_BT), "max_new_tokens": task.new_tokens, "pad_token_id": 0}

    def write() -> int:
        ids_BT = model.generate(prompts_BT, **options, **how).tolist()
        return sum(len(row) - len(task.prompt) for row in ids_BT)

    return write


def by_gpt_fast(lab: Lab, checkout: Path, task: Task, temperature: float, top_k: int) -> Write:
    """Return the side of gpt-fast: its network is a Llama, also where it has as many parameters as GPT-2."""
    config = task.config
    model_file = load_module(checkout / "model.py", "gpt_fast_model")
    tokenizer = ModuleType("tokenizer")  # its own tokenizer needs libraries that this benchmark does not use
    tokenizer.get_tokenizer = None  # type: ignore[attr-defined]
    known = {"model": model_file, "tokenizer": tokenizer}
    program: Any = load_module(checkout / "generate.py", "gpt_fast_generate", known)
    if lab.on_gpu:
        lab.forget_compiled()
        eager = vars(program).setdefault("eager_decode_one_token", program.decode_one_token)
        program.decode_one_token = torch.compile(eager, mode="reduce-overhead", fullgraph=True)
    # with a gate there are three matrices, not two: at 2/3 of the width they have as many parameters
    hidden = config.hidden if config.activation == "swiglu" else config.hidden * 2 // 3
    sizes = model_file.ModelArgs(
        block_size=config.window,
        vocab_size=padded_size(task.vocab_size),
        n_layer=config.layers,
        n_head=config.heads,
        dim=config.width,
        intermediate_size=hidden,
        n_local_heads=config.kv_heads,
    )
    model = model_file.Transformer(sizes).to(lab.device, getattr(torch, precision(lab))).eval()
    prompt_T = torch.tensor(task.prompt, dtype=torch.int, device=lab.device)

    def write() -> int:
        ids_BT, _ = program.generate(
            model,
            prompt_T,
            task.new_tokens,
            batch_size=task.rows,
            interactive=False,
            draft_model=None,
            temperature=temperature,
            top_k=top_k,
        )
        return sum(len(row) - len(task.prompt) for row in ids_BT.tolist())

    return write


def by_llama_cpp(model: Path, window: int, new_tokens: int, top_k: int) -> Write:
    """Return the side of llama.cpp, by llama-cpp-python, on two threads of the CPU."""
    from llama_cpp import Llama

    llama: Any = Llama(str(model), n_ctx=window, n_threads=2, verbose=False)

    def write() -> int:
        llama.reset()
        tokens = llama.generate(list(PROMPT), temp=1.0, top_k=top_k, top_p=1.0, min_p=0.0, repeat_penalty=1.0)
        return sum(1 for _, _ in zip(range(new_tokens), tokens, strict=False))

    return write
