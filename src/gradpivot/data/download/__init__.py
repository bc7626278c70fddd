"""Getting data: the catalogue, official sources and registry packages, the checked cache."""
