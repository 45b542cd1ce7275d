"""What event-driven hardware sees of a converted network: its circuit, the events on its wires, an event simulator."""
