"""Which worker of pytest-xdist runs what, and in which order."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if not item.get_closest_marker("apart"):
            # one worker's, for the servers that the file's tests share
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=lambda item: item.get_closest_marker("lengthy") is None)
