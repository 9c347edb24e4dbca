"""N-gram models: counted, smoothed, packed into a trie, walked as an automaton.

In reading order: levels.py (what n-grams look like, and how to count them slowly), smooth.py (the equations),
methods.py and tuning.py (where their parameters come from), estimate.py (the equations over all lengths), trie.py
(how a model is kept), automaton.py (how it is walked), model.py (behind the contract), train.py (all in order).

Beside them: count.py and sorting.py count fast; kernels.py and packing.py have fast loops; codes.py, packed.py,
values.py and index.py make models small or quick; workspace.py caps memory; prune.py leaves n-grams out, build.py
takes models apart and puts them together, mix.py makes one of two; arpa/ reads and writes what other toolkits do;
infinite/ has no bound on the length.
"""
