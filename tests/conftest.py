"""What all tests share: how hard Hypothesis tries."""

import os

from hypothesis import HealthCheck, settings

# No deadline: on a loaded machine the slowest of 100 examples says nothing about the code.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile(
    "campaign",
    deadline=None,
    print_blob=True,
    max_examples=10_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
