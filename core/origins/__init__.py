"""Origins: where each value of an action comes from, so that policies, cards and verifiers can read it.

Of a workflow's steps the origin follows exactly from the expression (``expressions``). Of an agent's calls it is found
by matching what the model says with what it was shown before (``matching``).
"""
