"""Device graphs: a network's forward and backward pass recorded once, and launched as a whole from then on.

On a fast GPU a training step waits for Python, which launches hundreds of small kernels one by one. A recorded pass is
launched by one call. Loss, gradient scaler, optimizer and everything else of a training stay as they are: `captured`
records and replays, `network` decides for each shape of a model whether that is worth it, `signature` and `settings`
notice when the model is no longer the one that was recorded. `inference` does the same for networks that only compute,
with `recorded_forward` and `state`. Nothing here knows of Ultralytics, or of who computes the layers.
"""
