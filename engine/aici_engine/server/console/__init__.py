"""The console: the web page of the server. Its sources are in the folder `console/` of the repository; `build.py`
bundles the sources with Vite, and `routes.py` serves the bundle.
"""
