"""The only modules that import torch, numpy or the tensordict package."""
