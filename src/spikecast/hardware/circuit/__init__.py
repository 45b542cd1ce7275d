"""A network as layers of neurons and the linear wiring between them."""
