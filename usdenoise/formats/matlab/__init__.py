"""MATLAB files, up to version 7 and 7.3."""
