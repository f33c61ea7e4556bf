"""Write the generated pages: `python -m docs.generators`."""

from pathlib import Path

from docs.generators import PAGES

for name, page in PAGES.items():
    (Path(__file__).parents[1] / "reference" / name).write_text(page())
