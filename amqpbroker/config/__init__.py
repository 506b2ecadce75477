"""From a YAML file to the frozen settings of each package, or to all that is wrong with it at once.

`load.py` reads (hardened YAML, positions kept), `model.py` says what may stand in a file and turns it into settings.
Imported only when a file is given: pydantic costs 0.3 s of start-up.
"""
