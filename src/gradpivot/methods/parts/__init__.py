"""Building blocks of methods: Fisher information, the last layer."""
