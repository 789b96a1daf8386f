"""Slack messages as side effects of workflows (approval cards are in ``approvals``)."""
