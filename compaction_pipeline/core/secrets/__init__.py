"""What is secret: by the names of properties, by references to values that lie elsewhere, and by the values that this process knows."""
