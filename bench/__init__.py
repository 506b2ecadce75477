"""The benchmark: what a message, a connection and a start cost a broker, beside other brokers.

`python -m bench --help`. Reading order:

- `load.c`: the load client, any AMQP 1.0 broker by URL; usable by hand (`python -m bench --build` tells where it is)
- `client.py`: builds and drives it
- `process.py`: CPU time and memory of a process tree; the benchmark's clock
- `brokers.py`, `artemis.py`: how each broker is started, warmed and stopped
- `workloads.py`: what is done to a broker, and the figures that come of it
- `compare.py`: interleaved runs, pairwise ratios, when to run again
- `targets.py`: what must be reached, as a table
- `report.py`: the tables

CPU per message of the broker's process tree, as a ratio to another broker's in interleaved runs, is the figure
to compare by: rates and latencies move more with the machine and its other work. It moves too. Look at the
quartiles, and at what a second process of the same broker reads (`--brokers ours,ours-again`), before you
believe a ratio.
"""
