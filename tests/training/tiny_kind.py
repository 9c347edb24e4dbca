"""A kind whose training keeps a run: the small bigram network, made a table once it is trained."""

from __future__ import annotations

import torch
from chainrule_example.bigram import BigramSettings, TorchBigram, load
from trainables import Bigram
from trainables import train as train_bigram

from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import Kind
from chainrule.networks.training_settings import TrainingSettings


def train(settings: TrainingSettings, data: TrainingData) -> TorchBigram:
    torch.manual_seed(data.seed)
    network = Bigram(vocab_size=data.tokenizer.vocab_size)
    trained = train_bigram(network, settings, data, sample=lambda: "a sample")
    with torch.no_grad():
        logits_VV = network.head(network.features(torch.arange(data.tokenizer.vocab_size)))
    logits_VV[:, data.tokenizer.bos] = -torch.inf
    lm = TorchBigram(logits_VV.log_softmax(-1), data.tokenizer, data.context, BigramSettings())
    lm.metrics = {"steps": trained.state.step, "validation_loss": trained.state.best_loss}
    return lm


KIND = Kind("tiny", "a small network", TrainingSettings, train, load, keeps_run=True)
