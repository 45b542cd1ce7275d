"""The paper's mathematics as pure functions of tensors."""
