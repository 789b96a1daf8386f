"""Origins: where each value of an action comes from, so that policies, cards and verifiers can read it.

The origins of a workflow's steps follow exactly from their expressions (``expressions``). The origins of an agent's
calls are found by matching the model's arguments against what the model was shown before (``matching``).
"""
