"""Engines: each builds, loads and trains networks in one framework.

base.py          the interface of an engine, which kinds and the loop use
torch_engine.py  networks of torch, on a CPU or a GPU
torch_step.py    one step, its gradients micro-batch by micro-batch
cuda_graph.py    a step as a CUDA graph
tape_engine.py   networks on the tape, in NumPy
"""
