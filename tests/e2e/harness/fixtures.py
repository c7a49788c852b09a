"""Rigs that many tests share, and what is asserted after each of them."""

import itertools

import pytest

from .rig import Rig

COUNTER = itertools.count()


def new_rig(work_dir, io, change=None, **options):
    return Rig(work_dir / f"rig{next(COUNTER)}", io, change, **options)


def finish_test(rig):
    """After a test on a shared rig: nothing crashed, no script failed."""
    errors = rig.reset()
    if rig.culvert.exit_code is None:
        rig.culvert.check_sound()
    assert not errors, "in the origin's script:\n" + "\n".join(errors)


class SharedRig:
    """A rig that many tests use; one that a test broke is replaced for the next."""

    def __init__(self, make):
        self.make = make
        self.rig = None

    def get(self):
        if self.rig is not None:
            try:
                self.rig.culvert.check_sound()
            except AssertionError:
                self.drop()
        if self.rig is None:
            self.rig = self.make()
        self.rig.reset()
        return self.rig

    def drop(self):
        rig, self.rig = self.rig, None
        rig.culvert.kill()
        rig.close_peers()

    def stop(self):
        if self.rig is not None:
            rig, self.rig = self.rig, None
            rig.stop()


class RigPool:
    """The shared rigs of one worker, by the function that changes the configuration. The standard one
    stays, of the others the last few: io_uring's rings are charged to one user's locked memory."""

    LIVE = 2

    def __init__(self, work_dir, io):
        self.work_dir = work_dir
        self.io = io
        self.shared = {}            # in the order of their last use
        self.problems = []

    def get(self, change=None, **options):
        shared = self.shared.pop(change, None) or \
            SharedRig(lambda: new_rig(self.work_dir, self.io, change, **options))
        self.shared[change] = shared
        others = [key for key in self.shared if key is not None]
        for key in others[:-self.LIVE]:
            self.retire(self.shared.pop(key))
        return shared.get()

    def retire(self, shared):
        try:
            shared.stop()
        except AssertionError as error:
            self.problems.append(str(error))

    def stop(self):
        for shared in self.shared.values():
            self.retire(shared)
        assert not self.problems, "\n".join(self.problems)


def shared_rig(change=None, **options):
    """A fixture: `quick = shared_rig(change)` gives tests a rig of that configuration, made once."""
    @pytest.fixture
    def fixture(rig_pool):
        rig = rig_pool.get(change, **options)
        yield rig
        finish_test(rig)
    return fixture
