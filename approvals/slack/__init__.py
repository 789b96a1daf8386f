"""Approvals in Slack: cards, clicks and the messages that follow."""
