"""What a run does, counted in whole numbers, op by op and step by step."""
