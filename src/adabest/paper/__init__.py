"""The paper: its experiments as specifications, its table and figures, and what agrees with them."""
