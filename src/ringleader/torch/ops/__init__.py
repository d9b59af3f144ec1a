"""The operations that scripts call, a module each; `differentiable_operation` tells autograd of them."""
