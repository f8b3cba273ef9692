"""What the server that forks processes imports first, and nobody else.

The server and its processes print no traceback: the executor says what became of them.
"""

import sys

sys.excepthook = lambda *error: None
