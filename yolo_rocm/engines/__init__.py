"""What all operators share: measuring, choosing, remembering, qualifying and launching kernels."""
