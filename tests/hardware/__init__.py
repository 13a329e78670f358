"""Tests of yolo_rocm.hardware."""
