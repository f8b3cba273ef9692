"""The report of a result: one record, and the tables, pictures, films and pages that show it.

The report is :class:`usdenoise.report.record.Report`, which `report_of` makes from a result. The JSON file, the summary,
the page, the tables and the row of a batch are views of it.

A picture is a function that draws with matplotlib under `panels.own_settings` and ends in `panels.encoded`. An image or a
volume is a layer: its panels and their colours, which `panels.panel_figure` draws. A new picture of a result is a row of
PICTURES in `pictures`, which has its title and caption, its layer in `pictures.result_layer`, and its files in
`usdenoise.jobs.products`, which specifies when it is written.

A page is a function and a template of its name: `scan_page` and `templates/scan.html`, `pages.batch_page` and
`templates/batch.html`; the methods paragraphs are `methods_paragraph`, `templates/methods.txt` and `methods_short.txt`.
Words and tables of a page are in its template, and the function gives the numbers that have to be computed; a new curve is a
`Chart`.

From outside, these functions are imported from their files, with `Chart`, `Carpet`, `Picture` and `Entry`.
"""
