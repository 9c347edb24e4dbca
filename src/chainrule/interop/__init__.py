"""Models, tokenizers and texts of other programs read, and ours put to work in them.

foreign.py         errors that values of another program's file cause
weights.py         published weights: names, shapes, what cannot be expressed
decoders.py        the weights of a GPT-2, of a Llama, of a Qwen3 and of a Mistral
vocabularies/      tokenizers: ours as tokenizer.json, and files of others
bert.py            the weights of a BERT
bart.py            the weights of a BART
shards.py          weights in safetensors files, one or several
huggingface.py     folders as transformers keeps them
llama2c.py         checkpoints of llama2.c
gguf.py            files for llama.cpp
conversion.py      any of these by what a file or folder is: `export_model`, `import_model`; models of the hub
continuations.py   ln p of a continuation after a context, and text written until a stop string
lm_eval.py         lm-evaluation-harness: an `LM` over any model folder
sklearn.py         scikit-learn: `PerplexityClassifier`, one language model for each class
"""
