"""One checksummed file per finished run, an index over them, and leases."""
