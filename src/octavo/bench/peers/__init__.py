"""Servers side by side: started from a description, measured alike, stopped; nothing of them stays behind."""
