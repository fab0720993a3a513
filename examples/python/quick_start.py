"""A model's folder in, text out: python examples/python/quick_start.py [folder]"""

import sys

import megalith

model = megalith.load(sys.argv[1] if len(sys.argv) > 1 else "models/storyteller", max_batch=2)
print(model, file=sys.stderr)

prompt = "Once upon a time"
print(prompt, end="")
for piece in model.generate(prompt, max_new_tokens=40, stream=True):
    print(piece, end="", flush=True)
print()

for result in model.generate(["A king", "A fox"], max_new_tokens=12):
    print(repr(result.text), result.reason)
