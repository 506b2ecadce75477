"""CPU time and memory of a process and its descendants, and the benchmark's clock. Linux only."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def now() -> float:
    """Seconds of CLOCK_MONOTONIC, the clock that load.c stamps with."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def pause(seconds: float) -> None:
    """Wait; the one place where the benchmark sleeps."""
    time.sleep(seconds)


@dataclass(frozen=True)
class Usage:
    """What a process tree has used until now."""

    at: float  # seconds, now()
    cpu: float  # seconds of user and system time, all threads, ended ones too
    memory: int  # resident bytes; pages shared between processes count for each


def usage(pid: int) -> Usage:
    """CPU and memory of `pid` and all its descendants that live now."""
    tree = descendants(pid)
    return Usage(now(), sum(map(cpu_seconds, tree)), sum(map(resident_bytes, tree)))


def cpu_seconds(pid: int) -> float:
    """CPU time of one process; 0 when it is gone.

    By the process's own CPU clock, in ns: /proc/PID/stat counts in ticks of 10 ms, a whole percent
    of a run of a second. The clock's number is a function of the pid (clock_getcpuclockid(3)).
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def resident_bytes(pid: int) -> int:
    """Resident memory of one process; 0 when it is gone."""
    try:
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def descendants(pid: int) -> list[int]:
    """`pid` and everything below it."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (parent := parent_of(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:  # Grows while it is walked.
        found.extend(children.get(each, ()))
    return found


def parent_of(entry: Path) -> int | None:
    """The parent's pid by /proc/PID/stat; None when the process is gone."""
    try:
        # The command's name may hold spaces and brackets: fields count from the last bracket.
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None
