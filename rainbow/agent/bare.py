"""The start of runs that an agent left in a resource manager's queue when its executors had no folder of their own.

Such a run is `python bare.py on_node FOLDER KEY SHARES`; it continues as executors/bootstrap.py starts it today.
"""

import runpy
import sys
from pathlib import Path

NOW = {"on_node": "shared_folder"}

if __name__ == "__main__":
    sys.argv[1] = NOW.get(sys.argv[1], sys.argv[1])
    runpy.run_path(str(Path(__file__).resolve().parent / "executors" / "bootstrap.py"), run_name="__main__")
