"""Models with an encoder, which reads all of its input before it says anything of it.

In reading order:

    seq2seq/   a target for a source: encoder-decoders, translation, pretraining by denoising
    masked/    tokens hidden in a text, and found again from both sides
    tagging/   a tag for each word of a sentence
"""
