"""The web page: HTML from the server, readable without JavaScript.

    frame       the guard of every page: session, forms, headers; a page made from its template
    site        all of it together, with static files and faults
    words       how times, numbers and hostile text are written
    views/      one file for each group of pages
    templates/  HTML (Jinja2); static/: one style sheet, at most four ES modules by hand

A view reads what the API's views read and computes nothing of its own: no figure is only on the page.
"""

from __future__ import annotations

from rainbow.page.site import install

__all__ = ["install"]
