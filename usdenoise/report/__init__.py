"""Pictures and pages: arrays and reports in, bytes and HTML out.

A picture is a function that draws with matplotlib and ends in `figures.encoded`, or in `panels.panel_picture` where it
shows an image or a volume. A new one is such a function, and a row of the table in `usdenoise.jobs.products` that says when
it is drawn and whether the page shows it.

A page is a function and a template of its name: `scan_page` and `templates/scan.html`, `batch_page` and
`templates/batch.html`; the methods paragraph is `methods_paragraph` and `templates/methods.txt`. Words and tables of a page
are in its template, and the function gives the numbers that have to be computed; a new curve is a `Chart`.

From outside, these functions are imported from their files, with `Chart`, `Carpet`, `Picture` and `Entry`.
"""
