"""Options and fixtures. See harness/rig.py for the standard configuration.

    rig                          the standard culvert of this worker, clean at the start of each test
    door, web, fwd               its listeners: door runs a test through both (harness/door.py)
    make_rig(change)             a culvert of the test's own, stopped (cleanly) at its end
    quick = shared_rig(change)   in a test file: a fixture like rig, of another configuration
                                 (from harness.fixtures)
"""

import pathlib
import shutil
import tempfile

import pytest

from harness.door import door, fwd, web  # noqa: F401
from harness.fixtures import RigPool, new_rig, shared_rig

IO_NAMES = {"epoll": "epoll", "uring": "io_uring", "auto": "auto"}

rig = shared_rig()


def pytest_addoption(parser):
    parser.addoption("--io", choices=sorted(IO_NAMES), default="epoll", help="the loop's back end")


@pytest.fixture(scope="session")
def io(pytestconfig):
    """The value of the setting `io:`."""
    return IO_NAMES[pytestconfig.getoption("--io")]


@pytest.fixture(scope="session")
def work_dir():
    """A directory that only its owner may enter: nobody cannot open a log in it, the keeper can."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="culvert-e2e-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def rig_pool(work_dir, io):
    pool = RigPool(work_dir, io)
    yield pool
    pool.stop()


@pytest.fixture
def make_rig(work_dir, io):
    """make_rig(change, **options) -> Rig. stop() it in the test to assert the end, or leave it."""
    rigs = []

    def make(change=None, **options):
        rigs.append(new_rig(work_dir, io, change, **options))
        return rigs[-1]
    yield make
    problems = []
    for made in rigs:
        try:
            errors = made.a.errors + made.b.errors
            made.stop()
            assert not errors, "in the origin's script:\n" + "\n".join(errors)
        except AssertionError as error:
            problems.append(str(error))
    assert not problems, "\n".join(problems)
