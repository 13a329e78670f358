"""Helpers that know nothing of YOLO, presets or convolutions.

Atomic writing of files (`atomic`), reading of files that may be hostile (`limited_files`), scoped patches of other
people's modules (`scoped_patch`), the console and progress, process groups, paths of caches and the off switch. They
import no other room, so that every room can use them. A newcomer puts here what two rooms would otherwise write twice.
"""
