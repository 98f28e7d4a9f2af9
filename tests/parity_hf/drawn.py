"""What tests draw anew in every run comes from one seed, which is printed; MUSTER_SEED=N repeats a run."""

import functools
import os
import random


@functools.cache
def seed():
    given = os.environ.get("MUSTER_SEED")
    value = int(given) if given else random.SystemRandom().randrange(1 << 32)
    print(f"seed {value}; MUSTER_SEED={value} draws the same again", flush=True)
    return value


def number(*labels):
    """For what has these labels, whatever else has been drawn; below 2^32."""
    return random.Random(f"{seed()} {labels}").randrange(1 << 32)
