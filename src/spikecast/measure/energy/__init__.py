"""What a run would cost on event-driven hardware: operations counted in whole numbers, and priced."""
