"""Memory files: pooled, counted, immutable while mapped, checked when opened."""

from __future__ import annotations

import gc
import mmap
import os
import random
import stat
import tempfile
import unittest
import unittest.mock
from typing import Any, Callable

from comfy_supervisor_worker.wire import files
from comfy_supervisor_worker.wire.errors import CannotCross
from comfy_supervisor_worker.wire.files import PAGE, map_private, open_reference
from comfy_supervisor_worker.wire.pagemap import Pagemap
from comfy_supervisor_worker.wire.pool import OwnedFile, Pool, _rounded
from harness import LIMIT, Pair


class Pools(unittest.TestCase):
    def setUp(self) -> None:
        self.reserved = 0
        self.limit = 1 << 40
        self.pool = Pool("f" * 32, self.reserve, self.give_back)
        self.addCleanup(self.empty)
        self.taken: list[OwnedFile] = []

    def reserve(self, size: int, held: Callable[[], int]) -> None:
        self.assertEqual(held(), self.reserved, "what the pool says that it has")
        if self.reserved + size > self.limit:
            raise CannotCross("quota", "quota")
        self.reserved += size

    def give_back(self, size: int) -> None:
        self.reserved -= size

    def empty(self) -> None:
        for file in self.pool.lent():
            self.pool.released(file["id"])
        self.pool._drop_free(0)
        self.assertEqual(self.pool.booked, self.reserved)

    def lend(self, size: int) -> str:
        file = self.pool.take(size)
        self.pool.lend(file)
        return file.id

    def test_a_file_comes_back_under_a_new_id(self) -> None:
        first = self.lend(1 << 20)
        descriptor = self.pool.lent()[0]["fd"]
        self.pool.released(first)
        second = self.lend(1 << 20)
        self.assertNotEqual(first, second)
        self.assertEqual(self.pool.lent()[0]["fd"], descriptor, "the same file")
        self.assertEqual(self.reserved, 1 << 20)

    def test_the_pool_keeps_no_more_than_its_limit(self) -> None:
        self.pool.free_limit = 3 << 20
        ids = [self.lend(1 << 20) for _ in range(5)]
        for file_id in ids:
            self.pool.released(file_id)
        self.assertEqual(self.pool.sizes()["free_bytes"], 3 << 20)
        self.assertEqual(self.reserved, 3 << 20)

    def test_what_lies_unused_is_given_up_before_the_quota_is_an_error(self) -> None:
        self.limit = 4 << 20
        self.pool.released(self.lend(3 << 20))
        kept = self.lend(4 << 20)
        self.assertEqual(self.reserved, 4 << 20)
        with self.assertRaises(CannotCross):
            self.pool.take(1 << 20)
        self.pool.released(kept)

    def test_a_spoiled_file_is_not_used_again(self) -> None:
        self.pool.released(self.lend(1 << 20), spoiled=True)
        self.assertEqual((self.reserved, self.pool.sizes()["free_bytes"]), (0, 0))

    def test_a_file_that_was_not_sent_is_free_again(self) -> None:
        file = self.pool.take(100)
        self.pool.put_back(file)
        self.assertEqual(
            self.pool.sizes(), {"free_bytes": file.size, "lent_bytes": 0, "filling_bytes": 0}
        )

    def test_unknown_and_doubled_releases_are_ignored(self) -> None:
        kept = self.lend(1 << 20)
        self.pool.released(kept)
        self.pool.released(kept)
        self.pool.released("never-1")
        self.assertEqual(self.pool.sizes()["free_bytes"], 1 << 20)

    def test_sizes_are_rounded_by_an_eighth_at_most(self) -> None:
        for size in (1, 65_536, 65_537, 1 << 20, (1 << 26), (1 << 26) + 1, 3_000_001):
            rounded = _rounded(size)
            self.assertGreaterEqual(rounded, size)
            self.assertLessEqual(rounded, max(65_536, size * 9 // 8 + PAGE))
            self.assertEqual(rounded % PAGE, 0)
        self.assertEqual(_rounded(1 << 26), 1 << 26)

    def test_no_room_for_a_file_is_a_clear_error(self) -> None:
        with self.assertRaises(CannotCross) as caught:
            self.pool.take(1 << 60)
        self.assertEqual(caught.exception.kind, "quota")
        self.assertEqual(self.reserved, 0)


class Crossing(unittest.TestCase):
    def setUp(self) -> None:
        self.pair = Pair()
        self.addCleanup(self.pair.close)

    def settle(self, message: Any, count: int = 1) -> None:
        supervisor = self.pair.right_supervisor
        ids = [file["id"] for file in message["files"]]
        supervisor.wait(lambda: all(supervisor.released().get(key) == count for key in ids))

    def test_release_is_reported_when_the_last_use_is_gone(self) -> None:
        message = self.pair.send(b"x" * 3_000_000)
        value = self.pair.receive(message)
        self.settle(message)  # bytes are copied out, so the mapping is gone at once
        self.assertEqual(len(value), 3_000_000)
        self.assertEqual(self.pair.right.mappings.holds(), [])

    def test_deliveries_are_counted(self) -> None:
        message = self.pair.send(b"x" * 3_000_000)
        mappings = self.pair.right.mappings
        first = mappings.receive(message["files"])
        second = mappings.receive(message["files"])
        self.assertEqual(mappings.holds(), [{"id": message["files"][0]["id"], "count": 2}])
        del first
        gc.collect()
        self.assertEqual(self.pair.right_supervisor.released(), {})
        del second
        self.settle(message, 2)

    def test_deliveries_of_one_file_do_not_see_each_others_writes(self) -> None:
        message = self.pair.send(b"x" * 3_000_000)
        one = self.pair.right.mappings.receive(message["files"])[0].mapping
        two = self.pair.right.mappings.receive(message["files"])[0].mapping
        one[:3] = b"abc"
        self.assertEqual(two[:3], b"xxx")
        self.assertEqual(self.pair.left.pool._lent[message["files"][0]["id"]].mapping[:3], b"xxx")

    def test_a_released_file_is_filled_again_only_after_the_owner_is_told(self) -> None:
        message = self.pair.send(b"x" * 3_000_000)
        kept = self.pair.right.mappings.receive(message["files"])[0].mapping
        other = self.pair.send(b"y" * 3_000_000)
        self.assertNotEqual(message["files"][0]["inode"], other["files"][0]["inode"])
        self.assertEqual(kept[:3], b"xxx")
        self.pair.left.on_released({"files": [{"id": message["files"][0]["id"], "count": 0}]})
        again = self.pair.send(b"z" * 3_000_000)
        self.assertEqual(message["files"][0]["inode"], again["files"][0]["inode"])

    def test_the_owner_learns_what_it_gave_back(self) -> None:
        self.pair.left.pool.free_limit = 0
        message = self.pair.send(b"x" * 3_000_000)
        reserved = self.pair.left_supervisor.reserved
        self.assertGreaterEqual(reserved, 3_000_000)
        self.pair.left.on_released({"files": [{"id": message["files"][0]["id"], "count": 0}]})
        self.pair.left_supervisor.wait(lambda: self.pair.left_supervisor.reserved == 0)

    def test_the_inventory_tells_all(self) -> None:
        message = self.pair.send(b"x" * 3_000_000)
        delivery = self.pair.right.mappings.receive(message["files"])
        self.assertEqual(self.pair.left.inventory()["owned"], message["files"])
        self.assertEqual(
            self.pair.left.inventory()["reserved_bytes"], self.pair.left_supervisor.reserved
        )
        self.assertEqual(
            self.pair.right.inventory()["holds"], [{"id": message["files"][0]["id"], "count": 1}]
        )
        del delivery

    def test_another_file_under_the_same_descriptor_is_noticed(self) -> None:
        message = self.pair.send(b"x" * 3_000_000)
        for wrong in ({"inode": 1}, {"size": 4}):
            with self.assertRaisesRegex(CannotCross, "not the one its sender meant"):
                open_reference({**message["files"][0], **wrong})

    def test_a_fork_spoils_what_is_mapped(self) -> None:
        message = self.pair.send(b"x" * 3_000_000)
        delivery = self.pair.right.mappings.receive(message["files"])
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        del delivery
        self.settle(message)
        entries = [
            file
            for note in self.pair.right_supervisor.notifications
            if note["method"] == "memory.released"
            for file in note["params"]["files"]
        ]
        self.assertTrue(entries[0]["spoiled"])

    def test_descriptors_do_not_pile_up(self) -> None:
        def count() -> int:
            return len(os.listdir("/proc/self/fd"))

        for _ in range(3):
            message = self.pair.send(b"x" * 3_000_000)
            self.pair.receive(message)
            self.settle(message)
            self.pair.left.on_released({"files": [{"id": message["files"][0]["id"], "count": 0}]})
        before = count()
        for _ in range(50):
            message = self.pair.send(b"x" * 3_000_000)
            self.pair.receive(message)
            self.settle(message)
            self.pair.left.on_released({"files": [{"id": message["files"][0]["id"], "count": 0}]})
        self.assertEqual(count(), before)


class NamedFiles(unittest.TestCase):
    """Files in a folder, as on systems without memory files."""

    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        patch = unittest.mock.patch.object(files, "ANONYMOUS", False)
        patch.start()
        self.addCleanup(patch.stop)
        self.pair = Pair()
        self.addCleanup(self.pair.close)
        self.path = os.path.join(self.folder.name, "files")
        self.pair.left.pool.configure({"folder": self.path, "pool_bytes": 0})

    def test_values_cross_through_them_and_they_go_with_their_content(self) -> None:
        message = self.pair.send([b"x" * 3_000_000, b"y" * 100_000])
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o700)
        names = sorted(os.listdir(self.path))
        self.assertEqual(len(names), 2)
        self.assertTrue(all(name.startswith(self.pair.left.owner + "-") for name in names))
        self.assertEqual(
            {file["path"] for file in message["files"]},
            {os.path.join(self.path, name) for name in names},
        )
        for file in message["files"]:
            self.assertEqual((os.stat(file["path"]).st_mode & 0o777, file["fd"]), (0o600, -1))
        self.assertEqual(self.pair.receive(message), [b"x" * 3_000_000, b"y" * 100_000])
        for file in message["files"]:
            self.pair.left.on_released({"files": [{"id": file["id"], "count": 0}]})
        self.assertEqual(os.listdir(self.path), [])

    def test_without_a_folder_named_the_process_has_one_of_its_own(self) -> None:
        message = self.pair.send(b"x" * 3_000_000, self.pair.right)
        self.assertEqual(self.pair.receive(message, self.pair.left), b"x" * 3_000_000)
        self.assertEqual(
            stat.S_IMODE(os.stat(os.path.dirname(message["files"][0]["path"])).st_mode), 0o700
        )

    def test_a_folder_that_can_not_be_used_is_a_clear_error(self) -> None:
        os.rmdir(self.path)
        with self.assertRaisesRegex(CannotCross, "No such file or directory"):
            self.pair.send(b"x" * 3_000_000)


class Pagemaps(unittest.TestCase):
    def test_every_touched_page_is_found_and_no_other(self) -> None:
        import ctypes  # only to learn an address without numpy

        pages = 700
        file = OwnedFile("pagemap", pages * PAGE)
        self.addCleanup(file.destroy)
        mapping = map_private(file.descriptor, file.size)
        base = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        pagemap = Pagemap()
        self.assertTrue(pagemap.untouched(base, base + file.size), "nothing is mapped in yet")
        mapping[:]  # reads map the file's own pages
        self.assertTrue(pagemap.untouched(base, base + file.size))
        draw = random.Random(3)
        touched = sorted(draw.sample(range(pages), 40))
        for page in touched:
            mapping[page * PAGE + draw.randrange(PAGE)] = 1
        for page in range(pages):
            self.assertEqual(
                pagemap.untouched(base + page * PAGE, base + (page + 1) * PAGE), page not in touched
            )
        for _ in range(300):
            low = draw.randrange(file.size - 1)
            high = draw.randrange(low + 1, file.size)
            expected = not any(low // PAGE <= page <= (high - 1) // PAGE for page in touched)
            self.assertEqual(pagemap.untouched(base + low, base + high), expected)
        mapping[0:1] = mapping[0:1]  # the same byte again is a write all the same
        self.assertFalse(pagemap.untouched(base, base + 1))

    def test_it_answers_no_for_addresses_that_are_not_mapped(self) -> None:
        self.assertFalse(Pagemap().untouched((1 << 62), (1 << 62) + 10))

    def test_it_is_about_this_process_after_a_fork_as_well(self) -> None:
        pagemap = Pagemap()
        block = mmap.mmap(-1, PAGE)
        pagemap.untouched(0, 1)
        child = os.fork()
        if not child:
            import ctypes

            block[0] = 1
            address = ctypes.addressof(ctypes.c_char.from_buffer(block))
            os._exit(0 if pagemap._pid != os.getpid() and pagemap._open() and address else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


if __name__ == "__main__":
    unittest.main()
