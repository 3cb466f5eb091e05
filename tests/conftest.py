"""What holds for all tests."""

from hypothesis import settings

# No deadline: a machine that is busy with something else says nothing about the code.
settings.register_profile("house", deadline=None)
settings.load_profile("house")
