"""The tenant's log: an RFC 6962 tree of leaves, and the C2SP formats in which others read and check it."""
