"""The hook: what a command-line agent (Claude Code, Codex) runs before and after each of its tools.

Before the tool it asks, and fetches the permit; the agent's program runs the tool only if the hook says so. It cannot
be in the tool's body, so afterwards it reports the digest of the input that ran: another one than the permit's is in
doubt. It needs an address, a token and nothing of the server. A crash between the two leaves the action to its lease.
"""
