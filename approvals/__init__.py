"""Questions put to people: the model, the quorum, and Slack."""
