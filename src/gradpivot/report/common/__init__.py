"""What all reports share: grid, Markdown, LaTeX, the frame of a page, charts, wording."""
