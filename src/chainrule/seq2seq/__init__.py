"""Sequence to sequence: models that write a target for a source, such as a translation.

In reading order:

    contract.py    what a conditional language model is
    encoder_decoder_model.py  an encoder-decoder network as one
    training.py    the kind: how one is built, trained on pairs, and loaded
    resplitting.py pairs whose words are split anew in each epoch
    denoising.py   pretraining: damaged lines as sources, their repair as targets
    translate.py   texts in, translations out
    back_translation.py  new sources for targets, by a model that translates the other way
    alignments.py  the attention of each target token to the source
    quality.py     BLEU and chrF, also by the length of the source
    pictures.py    pictures of alignments, and of BLEU against the length of the source
    evaluate.py    how good a model is on pairs: perplexity, BLEU, chrF
"""

from __future__ import annotations

from chainrule.seq2seq.alignments import Alignment, align

__all__ = ["Alignment", "align"]
