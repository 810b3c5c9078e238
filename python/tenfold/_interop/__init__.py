"""Objects of torch, numpy and the tensordict package, which are imported on demand."""
