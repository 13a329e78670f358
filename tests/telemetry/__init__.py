"""Tests of yolo_rocm.telemetry."""
