# Scripts that import pyaici.server get the module aici.
import sys

import aici as server

sys.modules["pyaici.server"] = server
