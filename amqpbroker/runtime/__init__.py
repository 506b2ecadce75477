"""Where bytes, time and threads are: the loop, its sockets, the only clock, the Proton container.

Reading order: loop.py (the turn, and `serve` around it), wire.py (one accepted socket), listener.py and endpoints.py
(how sockets come to be), poller.py (who is ready), wakeup.py (how others reach the loop). container.py is Proton's
reactor on the same poller, with proton_private.py as the list of what it reaches into. thread.py is a broker in a
test suite's process.
"""
