"""Tests of yolo_rocm.graphs."""
