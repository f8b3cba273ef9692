"""What only many blocks of one scan have: a sample, bad blocks, activation, regions, and live sessions.

Arrays only; files are for `jobs`. `filter_session.py` and `online_session.py` are the drivers.
"""
