"""The HTTP face."""  # noqa: A005  (it is app.http, never http)
