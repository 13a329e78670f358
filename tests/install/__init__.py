"""Tests of yolo_rocm.install."""
