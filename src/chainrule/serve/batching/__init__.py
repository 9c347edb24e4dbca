"""The running batch of each model: requests join it and leave it while it goes on.

In reading order:

    requests.py   what a client asks for, and the ticket by which it hears of it
    prefixes.py   states after prompts that were read, which prompts with the same beginning go on from
    rows.py       the texts that are being written, as rows of one state
    engine.py     the thread of a model: reads prompts, writes, and does other work in bulk
"""
