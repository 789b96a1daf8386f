"""Stand-ins on loopback for ServiceNow, Slack and a model: the demo's world, and the tests'."""
