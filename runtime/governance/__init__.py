"""The governance of one step, pure: propose, recall, decide, ask, intend, settle, and doubt (promises 1 to 3)."""
