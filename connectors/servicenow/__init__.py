"""ServiceNow through the Table API."""
