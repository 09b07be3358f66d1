"""Memory files in a folder whose file system is full: a real one, mounted for one process.

Anonymous memory files lie in no file system that can be mounted small: what bounds them is the
quota, and the kernel, which ends a process of a control group that has no more memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from comfy_supervisor_worker.wire import files
from comfy_supervisor_worker.wire.errors import CannotCross
from harness import Pair

_FOLDER = "TEST_FULL_FOLDER"  # of the process that has a small file system there
_SMALL = """mount -t tmpfs -o size=6m none "$1" && echo mounted && shift && exec "$@\""""


class Full(unittest.TestCase):
    def run_with_small_folder(self, test: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            environ = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), **{_FOLDER: folder})
            shell = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _SMALL, "sh"]
            try:
                done = subprocess.run(
                    [*shell, folder, sys.executable, __file__, f"InSixMegabytes.{test}"],
                    env=environ,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            except FileNotFoundError:
                self.skipTest("a small file system is made with unshare, which is not there")
        if not done.stdout.startswith("mounted"):
            self.skipTest(f"users can not mount file systems for themselves here: {done.stdout}")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_what_does_not_fit_is_refused_until_there_is_room(self) -> None:
        self.run_with_small_folder("test_what_does_not_fit_is_refused_until_there_is_room")

    def test_what_lies_unused_makes_room(self) -> None:
        self.run_with_small_folder("test_what_lies_unused_makes_room")


class InSixMegabytes(unittest.TestCase):
    def setUp(self) -> None:
        patch = unittest.mock.patch.object(files, "ANONYMOUS", False)
        patch.start()
        self.addCleanup(patch.stop)
        self.path = os.path.join(os.environ[_FOLDER], "files")
        self.pair = Pair()
        self.addCleanup(self.pair.close)
        self.pool = self.pair.left.pool
        self.pool.configure({"folder": self.path, "pool_bytes": 64 << 20})

    def refused(self, size: int) -> None:
        before = (os.listdir(self.path), self.pool.booked, self.pool.sizes())
        with self.assertRaisesRegex(
            CannotCross, f"no space in {self.path} for a memory file of .*: free some, or send less"
        ) as caught:
            self.pair.send(b"z" * size)
        self.assertEqual(caught.exception.kind, "quota")
        self.assertEqual((os.listdir(self.path), self.pool.booked, self.pool.sizes()), before)

    def release(self, message: dict) -> None:
        for file in message["files"]:
            self.pair.left.on_released({"files": [{"id": file["id"], "count": 0}]})

    def test_what_does_not_fit_is_refused_until_there_is_room(self) -> None:
        lent = self.pair.send(b"x" * 3_000_000)
        self.refused(4_000_000)
        self.assertEqual(self.pair.receive(lent), b"x" * 3_000_000)
        filler = os.path.join(os.path.dirname(self.path), "filler")
        with open(filler, "wb", buffering=0) as file, self.assertRaises(OSError):
            while True:
                file.write(bytes(4096))
        self.refused(1_000_000)
        os.unlink(filler)
        self.assertEqual(self.pair.receive(self.pair.send(b"y" * 1_000_000)), b"y" * 1_000_000)

    def test_what_lies_unused_makes_room(self) -> None:
        for _ in range(2):
            self.release(self.pair.send(b"x" * 5_000_000))
            self.assertGreaterEqual(self.pool.sizes()["free_bytes"], 5_000_000)
            self.release(self.pair.send(b"y" * 1_500_000))


if __name__ == "__main__":
    unittest.main()
else:
    del InSixMegabytes  # for the process with the small file system
