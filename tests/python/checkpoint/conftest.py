"""Groups of processes in which the functions of ranks_program.py run."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("ranks_program.py")
SECONDS = 500  # far more than any test takes unless it hangs


class Ranks:
    """Processes of one gloo group, which run functions of ranks_program.py."""

    def __init__(self, store, size):
        command = [sys.executable, str(PROGRAM), str(store)]
        self.processes = [
            subprocess.Popen(
                [*command, str(rank), str(size)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]

    def run(self, folder, name, *arguments):
        """Runs the function `name` on each rank. Returns the results, None for ended ranks."""
        timer = threading.Timer(SECONDS, self.kill)
        timer.start()
        try:
            for process in self.processes:
                process.stdin.write(json.dumps([str(folder), name, *arguments]) + "\n")
                process.stdin.flush()
            lines = [process.stdout.readline() for process in self.processes]
        finally:
            timer.cancel()
        return [json.loads(line) if line else None for line in lines]

    def kill(self):
        for process in self.processes:
            process.kill()

    def close(self):
        self.kill()
        for process in self.processes:
            process.wait()
            process.stdin.close()
            process.stdout.close()


@pytest.fixture(scope="session")
def groups(tmp_path_factory):
    """Returns a function that returns the group of `size` processes, which all tests share.

    A group is created at its first use, because starting a process takes seconds.
    """
    made = {}
    store = tmp_path_factory.mktemp("stores")

    def get(size=2):
        if size not in made:
            made[size] = Ranks(store / str(size), size)
        return made[size]

    yield get
    for ranks in made.values():
        ranks.close()


@pytest.fixture
def run(groups, tmp_path):
    """Returns a function that runs a function of ranks_program.py on `size` ranks."""
    return lambda name, size=2: groups(size).run(tmp_path, name)


@pytest.fixture
def run_apart(tmp_path):
    """Like `run`, for functions that end a rank: starts new processes, and passes arguments."""

    def run(name, *arguments, size=2):
        ranks = Ranks(tmp_path / "store", size)
        try:
            return ranks.run(tmp_path, name, *arguments)
        finally:
            ranks.close()

    return run


@pytest.fixture
def errors(run):
    """Returns a function that runs a function of ranks_program.py and returns all error messages.

    The result has one message for each rank. The call fails unless every rank raised an error of
    the type `kind`.
    """

    def errors(name, kind, size=2):
        found = run(name, size)
        assert [rank["raised"] and rank["raised"][0] for rank in found] == [kind] * size, found
        return [rank["raised"][1] for rank in found]

    return errors
