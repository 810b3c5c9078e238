"""Classes with fields of tensors."""
