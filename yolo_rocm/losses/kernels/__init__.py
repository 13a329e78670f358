"""Triton kernels of a detector's loss, and their launches as plain data.

`iou` is what two share: the complete IoU of boxes and its gradient. `candidates` says which anchors may answer for a
target, `box_losses` what those that do have lost, `logits` what all have lost by their classes. These import Triton and
are imported only where one is launched or compiled; `calls` is plain data and needs none.
"""
