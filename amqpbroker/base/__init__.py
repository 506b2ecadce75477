"""What every layer may use: names of things, error values, units, AMQP values and message sections as bytes.

Pure functions and values: no Proton, no clock, no log. `sections.py` has a compiled twin, `_sections.pyx`.
"""
