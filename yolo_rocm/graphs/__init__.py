"""Device graphs: a network's forward and backward pass recorded once, and launched as a whole from then on.

On a fast GPU a training step waits for Python, which launches hundreds of small kernels one by one. A recorded pass is
launched by one call. Loss, gradient scaler, optimizer and everything else of a training stay as they are: `captured`
records and replays, `network` decides for each shape of a model whether that is worth it. `inference` does the same for
networks that only compute, with `recorded_forward`. What both share is `recorder`, with `signature`, which notices when
the model is no longer the one that was recorded. Nothing here knows of Ultralytics, or of who computes the layers.
"""
