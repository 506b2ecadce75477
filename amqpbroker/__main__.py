"""`python -m amqpbroker`: the same as the program `amqpbroker`."""

import sys

from amqpbroker.cli import main

sys.exit(main())
