from pathlib import Path

import course_lib  # noqa: F401  (keeps a grammar of addresses out: a second)

project = "Attention, from the math to the metal"
author = "the maintainers"
copyright = "MIT licence"
extensions = ["myst_nb", "sphinx_copybutton"]
exclude_patterns = []
html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["course.css", "explore.css"]
html_js_files = ["terms.js", "glossary.js", "explore.js"]
if Path(__file__).with_name("_static").joinpath("run.js").exists():
    html_js_files.append("run.js")
templates_path = ["_templates"]
html_sidebars = {"code/*/**": ["navbar-logo.html", "icon-links.html", "search-button-field.html",
                               "code-links.html"]}
html_copy_source = False
html_show_sourcelink = False
html_use_index = False                  # the index of terms is a page of its own
html_show_search_summary = False        # a page on the disk may not fetch another
html_theme_options = {
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "show_navbar_depth": 1,
    "collapse_navbar": True,
    "collapse_navigation": True}
# Mathematics is drawn by the copy of MathJax that the book carries.
mathjax_path = "mathjax/tex-svg.js"
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "application/vnd.course.verdict+json", None)]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
myst_links_external_new_tab = True
suppress_warnings = ["mystnb.unknown_mime_type", "mystnb.mime_priority", "misc.highlighting_failure",
                     "myst.xref_missing"]
copybutton_exclude = "pre > i, .gp"       # <i>: a line's number (build.lighter)
