"""The methods of a TensorDict, by what they do, over the operations of `_protocol`."""
