"""Slack messages as side effects of workflows (the approval cards live elsewhere)."""
