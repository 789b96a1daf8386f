"""HTTP requests to hosts that the installation allows."""  # noqa: A005  (it is connectors.http, never http)
