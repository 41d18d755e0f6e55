"""How the optimizers of a queue follow what scaling decides: their sizes, the steps of an action, and what is seen of them."""
