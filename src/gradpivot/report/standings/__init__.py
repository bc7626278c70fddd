"""Tables, figures and page of methods ranked over seeds and problems."""
