"""The frames of a stack: which are bad, how they move, and curves over them.

`displacement.displacements` and then `frame_check.check_frames` are the steps of the recipe, `bad_frames.py` and
`frame_curves.py` parts of the second. Outside, they, `FrameQuality` and `filling.interpolated` are imported.
"""
