"""An agent is a step (P-14): its loop unrolled into turns and calls, each a step with an id of its own.

The agent's own step waits, as for a run within; ``loop`` begins and ends it. A turn is the step ``triage/3``, a judged
call of the model; ``answers`` takes its answer apart. Each call is a step ``triage/3/2``; ``plan`` says which is next.
What the model is shown is put together from the book when it is asked (``chat``), so that each message is stored once.
``chat.Chat.shown`` is the ordered list of what the model had been shown before a turn, with the step and the operation
of each result, and marks on those that were refused: facts about a call's origins are made of it.
"""
