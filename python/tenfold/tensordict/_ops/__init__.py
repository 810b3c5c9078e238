"""Functions that implement methods of TensorDict with the operations of `_protocol.Primitives`."""
