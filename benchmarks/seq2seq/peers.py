"""Joey NMT and OpenNMT-py with the weights of one of our models, so that all give the same translations.

Both have the Transformer of "Attention is all you need" with norms before each part: sinusoidal positions, layer
norms, ReLU, biases, one table of embeddings. A model of ours that was trained with `DESIGN` is that Transformer,
and its weights fit there. So the peers give our translations, except where the rules of their searches differ.

All sides use our tokenizer, which takes hardly any time, and translate sentences in order of their length.
"""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.arrays import PAD, pad
from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel
from chainrule.seq2seq.translate import most_tokens

DESIGN = {"cell": "transformer", "preset": "lecture", "placement": "pre"}
"""The settings of a model whose weights fit the peers."""

SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
"""The first tokens of the peers' vocabularies; <blank> is padding, for which ours has no token."""
BLANK, END = 1, 3


class Peer(ABC):
    """A peer that translates with our weights; constructed from (model, width of the beam)."""

    name: str
    projections: tuple[str, str, str, str]
    """The modules of an attention: queries, keys, values and output."""
    attention: ClassVar[dict[str, str]]
    norms: ClassVar[dict[str, str]]
    """The modules of a layer of the encoder and of the decoder, and those of its attention to the encoder."""
    up_and_out: tuple[str, str]
    """The modules of a feed-forward part."""

    def __init__(self, lm: EncoderDecoderModel, beams: int) -> None:
        self.lm, self.beams = lm, beams
        self.config = lm.network.decoder.config  # type: ignore[union-attr]
        self.ours = vocabulary(lm)
        """Our id of each of the peer's tokens."""
        self.theirs = np.full(lm.tokenizer.vocab_size, END)
        self.theirs[self.ours[END:]] = np.arange(END, len(self.ours))
        if lm.tokenizer.unk is not None:
            self.theirs[lm.tokenizer.unk] = 0
        self.network = self.build().eval()
        for module in self.network.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = self.config.norm_eps
        with torch.no_grad():
            self.copy_weights()

    @abstractmethod
    def build(self) -> nn.Module:
        """Return the peer's network, in the size of ours."""

    @abstractmethod
    def copy_tables(self) -> None:
        """Copy our table of embeddings into the peer's tables."""

    @abstractmethod
    def layers(self, part: str) -> Any:
        """Return the layers of the encoder or the decoder."""

    def copy_weights(self) -> None:
        """Copy our weights into the peer's network."""
        self.copy_tables()
        for part in ("encoder", "decoder"):
            ours = getattr(self.lm.network, part)
            copy(ours.norm, [getattr(self.network, part).layer_norm])
            for block, layer in zip(ours.blocks, self.layers(part), strict=True):
                for name, theirs in self.names(part).items():
                    copy(block.get_submodule(name), [layer.get_submodule(its) for its in theirs])

    def names(self, part: str) -> dict[str, list[str]]:
        """Return the names of the modules of our blocks, each with those of the peer that have its weights."""
        q, k, v, out = self.projections
        own, cross = self.attention[part], self.attention["cross"]
        found = {
            "attention.qkv": [f"{own}.{name}" for name in (q, k, v)],
            "attention.out": [f"{own}.{out}"],
            "attention_norm": [self.norms[part]],
            "feedforward_norm": ["feed_forward.layer_norm"],
            "feedforward.up": [f"feed_forward.{self.up_and_out[0]}"],
            "feedforward.out": [f"feed_forward.{self.up_and_out[1]}"],
        }
        if part == "decoder":
            found |= {"cross.q": [f"{cross}.{q}"], "cross.kv": [f"{cross}.{k}", f"{cross}.{v}"]}
            found |= {"cross.out": [f"{cross}.{out}"], "cross_norm": [self.norms["cross"]]}
        return found

    @abstractmethod
    def search(self, source_BS: Tensor, lengths_B: Tensor) -> Sequence[Any]:
        """Return the peer's ids of the best target of each source."""

    def translate(self, texts: Sequence[str], batch: int) -> list[str]:
        """Translate texts, `batch` of them at a time."""
        sources = [self.theirs[self.lm.encode_source(text)] for text in texts]
        order = sorted(range(len(texts)), key=lambda number: -len(sources[number]))  # the longest first
        found = [""] * len(texts)
        for first in range(0, len(order), batch):
            rows = order[first : first + batch]
            source_BS = torch.from_numpy(pad([sources[row] for row in rows]))
            lengths_B = (source_BS != PAD).sum(dim=1)
            found_ids = self.search(source_BS.masked_fill(source_BS == PAD, BLANK), lengths_B)
            for row, ids in zip(rows, found_ids, strict=True):
                before_end = itertools.takewhile(lambda number: number != END, ids)
                found[row] = self.lm.tokenizer.decode([self.ours[one] for one in before_end if one > END])
        return found

    def table(self) -> Tensor:
        """Return our table of embeddings in the peer's order; its padding is our <s>, which no search gives."""
        table_VD: Tensor = self.lm.network.decoder.embedding[torch.from_numpy(self.ours)]  # type: ignore[union-attr]
        return table_VD


class Joey(Peer):
    """Joey NMT, with its own `search`."""

    name = "Joey NMT"
    projections = "q_layer", "k_layer", "v_layer", "output_layer"
    attention: ClassVar[dict[str, str]] = {
        "encoder": "src_src_att",
        "decoder": "trg_trg_att",
        "cross": "src_trg_att",
    }
    norms: ClassVar[dict[str, str]] = {
        "encoder": "layer_norm",
        "decoder": "x_layer_norm",
        "cross": "dec_layer_norm",
    }
    up_and_out = "pwff_layer.0", "pwff_layer.3"

    def build(self) -> nn.Module:
        logging.disable(logging.INFO)
        vocabulary = import_module("joeynmt.vocabulary").Vocabulary
        names = ("unk", "pad", "bos", "eos")
        special = {f"{name}_token": token for name, token in zip(names, SPECIAL, strict=True)}
        special |= {f"{name}_id": number for number, name in enumerate(names)}
        config = SimpleNamespace(**special, sep_token=None, sep_id=None, lang_tags=[])
        words = vocabulary([f"t{number}" for number in range(len(self.ours) - len(SPECIAL))], config)
        ours = self.config
        part = {
            "type": "transformer",
            "num_layers": ours.layers,
            "num_heads": ours.heads,
            "hidden_size": ours.width,
            "ff_size": ours.hidden,
            "layer_norm": "pre",
            "embeddings": {"embedding_dim": ours.width, "scale": True},
        }
        settings = {"encoder": part, "decoder": part, "tied_embeddings": True, "tied_softmax": True}
        network: nn.Module = import_module("joeynmt.model").build_model(settings, words, words)
        return network

    def copy_tables(self) -> None:
        self.network.src_embed.lut.weight.copy_(self.table())  # type: ignore[union-attr, operator]

    def layers(self, part: str) -> Any:
        return getattr(self.network, part).layers

    def search(self, source_BS: Tensor, lengths_B: Tensor) -> Sequence[Any]:
        batch = import_module("joeynmt.batch").Batch(
            src=source_BS,
            src_length=lengths_B,
            src_prompt_mask=None,
            trg=None,
            trg_prompt_mask=None,
            indices=torch.arange(len(source_BS)),
            device=source_BS.device,
            pad_index=BLANK,
            eos_index=END,
            is_train=False,
        )
        output, _, _ = import_module("joeynmt.search").search(
            model=self.network,
            batch=batch,
            max_output_length=most_tokens(int(lengths_B.max())),
            beam_size=self.beams,
            beam_alpha=1.0,
            n_best=1,
            generate_unk=False,
        )
        rows: Sequence[Any] = output
        return rows


class OpenNMT(Peer):
    """OpenNMT-py, with its own `Translator`; it ranks hypotheses by ln p per token, as ours does."""

    name = "OpenNMT-py"
    projections = "linear_query", "linear_keys", "linear_values", "final_linear"
    attention: ClassVar[dict[str, str]] = {"encoder": "self_attn", "decoder": "self_attn", "cross": "context_attn"}
    norms: ClassVar[dict[str, str]] = {"encoder": "layer_norm", "decoder": "layer_norm_1", "cross": "layer_norm_2"}
    up_and_out = "w_1", "w_2"

    def build(self) -> nn.Module:
        logging.disable(logging.INFO)
        parse = import_module("onmt.utils.parse").ArgumentParser
        parser = parse()
        import_module("onmt.opts").train_opts(parser)
        ours = self.config
        values: dict[str, object] = {
            "data": "none",
            "src_vocab": "none",
            "encoder_type": "transformer",
            "decoder_type": "transformer",
            "layers": ours.layers,
            "heads": ours.heads,
            "hidden_size": ours.width,
            "word_vec_size": ours.width,
            "transformer_ff": ours.hidden,
            "dropout": 0,
            "attention_dropout": 0,
        }
        arguments = ["-position_encoding", "-add_qkvbias", "-add_ffnbias"]
        arguments += [word for name, value in values.items() for word in (f"-{name}", str(value))]
        options, _ = parser.parse_known_args(arguments)
        parse.update_model_opts(options)
        build_vocab = import_module("pyonmttok").build_vocab_from_tokens
        words = build_vocab([f"t{i}" for i in range(len(self.ours) - len(SPECIAL))], special_tokens=SPECIAL)
        vocabs = {"src": words, "tgt": words, "data_task": "seq2seq", "decoder_start_token": "<s>"}
        network: nn.Module = import_module("onmt.model_builder").build_base_model(options, vocabs)
        network.generator = nn.Linear(ours.width, len(self.ours))
        translate = import_module("onmt.translate")
        scorer = translate.GNMTGlobalScorer(alpha=1.0, beta=0.0, length_penalty="avg", coverage_penalty="none")
        self.translator = translate.Translator(
            network,
            vocabs,
            beam_size=self.beams,
            dump_beam="",
            global_scorer=scorer,
            max_length_ratio=2,
            ban_unk_token=True,
            report_score=False,
        )
        return network

    def copy_tables(self) -> None:
        network: Any = self.network
        for part in (network.generator, network.encoder.embeddings.word_lut, network.decoder.embeddings.word_lut):
            part.weight.copy_(self.table())
        network.generator.bias.zero_()

    def layers(self, part: str) -> Any:
        stack: Any = getattr(self.network, part)
        return stack.transformer if part == "encoder" else stack.transformer_layers

    def search(self, source_BS: Tensor, lengths_B: Tensor) -> Sequence[Any]:
        batch = {"src": source_BS[:, :, None], "srclen": lengths_B, "ind_in_bucket": torch.arange(len(source_BS))}
        found = self.translator.translate_batch(batch, attn_debug=False)
        return [best[0].tolist() for best in found["predictions"]]


PEERS: dict[str, tuple[type[Peer], tuple[str, ...]]] = {
    "joey": (Joey, ("joeynmt.model", "joeynmt.search")),
    "opennmt": (OpenNMT, ("onmt.translate", "pyonmttok")),
}
"""Each peer, and the modules that it needs."""


def unlike(lm: EncoderDecoderModel) -> str | None:
    """Return why the weights of a model do not fit the peers; None if they do."""
    settings = lm.settings
    if settings.cell != "transformer":
        return "only a Transformer has weights for it"
    config = settings.transformer()
    wanted: dict[str, object] = {
        "norm": "layernorm",
        "placement": "pre",
        "activation": "relu",
        "positions": "sinusoidal",
    }
    wanted |= {"bias": True, "gain": True, "tied": True, "qk_norm": False, "scaled_embedding": True}
    wanted |= {"kv_heads": config.heads}
    for name, value in wanted.items():
        if getattr(config, name) != value:
            return f"its Transformer has {name}={value}, the model has {getattr(config, name)}: " + _ADVICE
    if lm.source_tokenizer is not lm.tokenizer or not settings.shared:
        return "its source and target share a table, those of the model do not"
    return None


_ADVICE = " ".join(f"--set {name}={value}" for name, value in DESIGN.items() if name != "cell")


def vocabulary(lm: EncoderDecoderModel) -> np.ndarray:
    """Return our id of each token of a peer: four special ones, then all others in our order."""
    tokenizer = lm.tokenizer
    unknown = tokenizer.bos if tokenizer.unk is None else tokenizer.unk
    special = [unknown, tokenizer.bos, tokenizer.bos, tokenizer.eos]
    others = [number for number in range(tokenizer.vocab_size) if number not in special]
    return np.asarray([*special, *others])


def copy(ours: Any, theirs: Sequence[Any]) -> None:
    """Copy the weight and the bias of a layer of ours into layers with equal shares of its outputs."""
    weights, biases = ours.weight.chunk(len(theirs)), ours.bias.chunk(len(theirs))
    for layer, weight, bias in zip(theirs, weights, biases, strict=True):
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
