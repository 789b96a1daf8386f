"""The console: pages for people, by the same rules as Slack and HTTP."""
