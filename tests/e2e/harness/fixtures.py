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
    """All shared rigs of one worker, by the function that changes the configuration."""

    def __init__(self, work_dir, io):
        self.work_dir = work_dir
        self.io = io
        self.shared = {}

    def get(self, change=None, **options):
        if change not in self.shared:
            self.shared[change] = SharedRig(lambda: new_rig(self.work_dir, self.io, change, **options))
        return self.shared[change].get()

    def stop(self):
        problems = []
        for shared in self.shared.values():
            try:
                shared.stop()
            except AssertionError as error:
                problems.append(str(error))
        assert not problems, "\n".join(problems)


def shared_rig(change=None, **options):
    """A fixture: `quick = shared_rig(change)` gives tests a rig of that configuration, made once."""
    @pytest.fixture
    def fixture(rig_pool):
        rig = rig_pool.get(change, **options)
        yield rig
        finish_test(rig)
    return fixture
