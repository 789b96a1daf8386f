"""AgentDojo's tasks and attacks against policies of ours, with a model that is wholly hijacked: ``make dojo``.

AgentDojo runs in an environment of its own (``installing``) behind a protocol of lines (``far``, ``asking``), so
nothing of it is imported or copied here. Its 74 tools are declared as operations in words of ours (``operations``,
``declared``). The model is a script: it makes the calls of the user's task and those of the attack (``scripts``). Each
call is judged by the policies in ``policies``, and people approve exactly the user's own, in real runs (``engine``) or
without a runtime (``playing``, ``judging``). What is counted is effects of the attack that no person approved
(``measuring``).
"""
