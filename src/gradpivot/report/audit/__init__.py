"""The report of an audit: JSON, a printable page and a console summary."""
