"""Pictures: from arrays to the encoded bytes of PNG, GIF and MP4 files."""
