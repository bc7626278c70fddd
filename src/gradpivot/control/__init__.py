"""Above methods: what is asked for as a sentence about scores, and the closed loop that gets there."""
