"""Networks: each with its configuration, its settings and its torch modules.

Settings and configurations import no torch: the tape, the kinds and the rule for defaults read them too. Most
networks are a `Network`: token ids in, features out, and a memory of the tokens read. In reading order:

    config.py             fields of configurations; feed-forward, bag-of-words and recurrent networks
    training_settings.py  the settings of the training loop
    settings.py           parts of settings; those of feed-forward and bag-of-words networks
    cells_or_blocks.py    settings of kinds whose layers are recurrent cells or Transformer blocks
    defaults.py           values for settings that are left open
    memory.py             the memory that a network keeps of the rows it has read
    word_vectors.py       word vectors read from a file, to initialise an embedding table
    network.py            the interface that all networks have
    initial_weights.py    initial weights, left out where stored ones replace them
    layers.py             products, embedding table, hidden layers, the head (logits and loss), RMSNorm
    loss.py               the cross-entropy loss, in pieces if the vocabulary is large
    loss_kernels.py       Triton kernels of the loss
    loss_on_cpu.py        compiled loops of the loss for CPUs
    precision.py          the precision that a network computes in
    regularise.py         dropout and penalties for training
    feedforward.py        an n-gram model whose words are vectors
    bag_of_words.py       hidden layers over the mean of all tokens before, whatever their order
    recurrent/            Elman networks, LSTMs, GRUs and QRNNs
    transformer/          Transformer decoders and encoders
    seq2seq/              encoder-decoders, whose memory begins from a source
    tagging/              taggers, which read the spelling of words too
    classification/       classifiers: an encoder, a pool over its tokens, and one label
"""
