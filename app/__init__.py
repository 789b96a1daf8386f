"""The composition root and the faces: settings, wiring, command line, HTTP, Slack."""
