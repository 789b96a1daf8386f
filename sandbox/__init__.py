"""Stand-ins on loopback for ServiceNow, Slack, a model and a BPMN engine, for the demo and the tests."""
