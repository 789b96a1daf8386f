"""AgentDojo's tasks and attacks against our policies, with a fully hijacked model: ``make dojo``.

AgentDojo runs in its own environment (``installing``) behind a line protocol (``far``, ``asking``), so none of it is
imported or copied here. Its 74 tools are declared as operations in our own words (``operations``, ``declared``). The
model is a script: it makes the calls of the user's task and those of the attack (``scripts``). The policies in
``policies`` judge each call, and people approve exactly the user's own calls, in real runs (``engine``) or without a
runtime (``playing``, ``judging``). We count the effects of the attack that no person approved (``measuring``).
"""
