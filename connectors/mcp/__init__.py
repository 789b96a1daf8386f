"""Tools of other servers over streamable HTTP (Model Context Protocol), as operations."""
