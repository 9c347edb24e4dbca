"""Encoder-decoders: networks that read a source, and then write a target token by token.

In reading order:

    config.py            configurations and settings of encoder-decoders, without torch
    encoder_decoder.py   the interface: a Network whose memory begins from a source
    alignment.py         the scores of attention: additive, dot, general, scaled
    recurrent.py         Elman networks, LSTMs and GRUs, without attention and with it
    transformer.py       the Transformer of "Attention is all you need"
"""
