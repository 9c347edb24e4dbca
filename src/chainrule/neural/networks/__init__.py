"""The architectures in torch. Most are a `Network`: token ids in, features out, and a memory of what was read.

In reading order:

    network.py        the interface that all networks have
    layers.py         embedding table, hidden layers, and the projection to the head
    head.py           the output layer: logits and loss
    loss.py           the cross-entropy loss, in pieces if the vocabulary is large
    loss_kernels.py   Triton kernels of the loss
    loss_on_cpu.py    compiled loops of the loss for CPUs
    precision.py      the precision that a network computes in
    regularise.py     dropout and penalties for training
    feedforward.py    an n-gram model whose words are vectors
    bag_of_words.py   the mean of all tokens read, whatever their order
    recurrent/        Elman networks, LSTMs and GRUs
    transformer/      Transformer decoders and encoders
    seq2seq/          encoder-decoders, whose memory begins from a source
    tagging/          taggers, and what they make of the spelling of words
"""
