"""The frames of a stack: which are bad, how they move, and curves over them.

`frame_check.check_frames` is the step of the recipe, `bad_frames.py`, `displacement.py` and `frame_curves.py` its
parts. Outside, it, `FrameQuality` and `filling.interpolated` are imported.
"""
