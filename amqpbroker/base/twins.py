"""Whether the compiled twins are wanted: the one place that reads AMQPBROKER_PURE_PYTHON.

No setting of the broker but of the process, like PYTHONMALLOC: it chooses between equals, for tests and for whoever
doubts, and must be known before anything is configured. Which twin runs is COMPILED of the module that has it.
"""

import os

PURE_WANTED = os.environ.get("AMQPBROKER_PURE_PYTHON") == "1"  # noqa: TID251  Before any configuration.
