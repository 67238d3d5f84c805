"""`python -m course_lib book`: a static site from the committed notebooks, which are not run again.

    pages.py     a notebook as a page: figures and their text alternative, folded solutions, links to the code
    code.py      every kernel file and module as a readable page
    index.py     the index of terms, and which chapters link a term to its definition
    moving.py    pictures that move; drawn.py: those that the page computes itself, with the small model
    texts.py     README, NOTATION and docs as pages; the glossary's terms
    running.py   kernels that run on a page, where a compiler for WebAssembly is installed; with --live, own ones too
    build.py     the source folder, Sphinx over it, and what the result weighs
    assets/      configuration, style and the script of the glossary"""
