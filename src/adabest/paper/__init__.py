"""The paper: its experiments as specifications, its table and figures, and how far ours agree with them."""
