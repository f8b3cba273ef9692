"""Pages: from reports and encoded pictures to self-contained HTML."""
