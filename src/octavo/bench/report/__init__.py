"""What a benchmark says: a table in the terminal, JSON, and a folder with an HTML page and Markdown."""
