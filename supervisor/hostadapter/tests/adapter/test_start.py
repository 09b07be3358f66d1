"""ComfyUI's start: discovery, fingerprints, kept scans, scans side by side, assets, serializers, routes."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
import types
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from comfyui_adapter import copying, discovery, environments, hostfacts, hostroutes, scans, serializers, settings, stuck
from comfyui_adapter.fingerprint import Fingerprints, fingerprint
from comfyui_adapter.scancache import Scan, ScanCache
from comfyui_adapter.scans import Scans, Wanted
from fakecomfy import Server, modules


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name: str, text: str = "") -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file


class Discovery(Folder):
    def test_a_manifest_isolates_its_folder_and_nothing_else(self) -> None:
        for name in ("one/comfy-env.toml", "one/__init__.py", "two/__init__.py", "_x/comfy-env.toml", ".y/comfy-env.toml"):
            self.write(f"pack/nodes/{name}")
        self.write("pack/nodes/gone.disabled/comfy-env.toml")
        self.write("pack/comfy-env.toml")
        pack = self.folder / "pack"
        self.assertEqual([source.module for source in discovery.isolated_sources(pack)], ["nodes.one"])
        self.assertEqual([source.module for source in discovery.plain_subfolders(pack)], ["nodes.two"])

    def test_a_manifest_at_the_top_takes_the_subfolders_along(self) -> None:
        self.write("pack/nodes/comfy-env.toml")
        self.write("pack/nodes/sub/comfy-env.toml")
        self.assertEqual([source.module for source in discovery.isolated_sources(self.folder / "pack")], ["nodes"])
        self.assertEqual(discovery.isolated_sources(self.folder / "none"), [])

    def test_the_packs_that_comfyui_loads(self) -> None:
        for name in ("a", "b", "c.disabled", "__pycache__"):
            self.write(f"custom_nodes/{name}/__init__.py")
        self.write("custom_nodes/no_pack/readme")
        folders = {"get_folder_paths": lambda name: [str(self.folder / name)]}
        arguments = types.SimpleNamespace(disable_all_custom_nodes=False, whitelist_custom_nodes=[], enable_manager=False)
        with modules(folder_paths=folders, comfy__cli_args={"args": arguments}):
            self.assertEqual([pack.name for pack in discovery.packs_to_load()], ["a", "b"])
            arguments.disable_all_custom_nodes = True
            self.assertEqual([pack.name for pack in discovery.packs_to_load()], [])
            arguments.whitelist_custom_nodes = ["b"]
            self.assertEqual([pack.name for pack in discovery.packs_to_load()], ["b"])
            arguments.enable_manager = True
            with modules(comfyui_manager={"should_be_disabled": lambda path: path.endswith("b")}):
                self.assertEqual([pack.name for pack in discovery.packs_to_load()], [])
        self.assertEqual(list(discovery.packs_to_load()), [])


class FingerprintsOfPacks(Folder):
    def test_content_counts_and_time_does_not(self) -> None:
        file = self.write("nodes/a.py", "x = 1")
        before = fingerprint(self.folder, "revision 1")
        os.utime(file, (1, 1))
        self.write("nodes/__pycache__/a.pyc", "other")
        self.write(".git/index", "other")
        self.write("weights.safetensors", "other")
        self.assertEqual(fingerprint(self.folder, "revision 1"), before)
        self.assertNotEqual(fingerprint(self.folder, "revision 2"), before)
        file.write_text("x = 2")
        self.assertNotEqual(fingerprint(self.folder, "revision 1"), before)

    def test_a_file_that_moves_or_comes_counts(self) -> None:
        self.write("a.py", "1")
        before = fingerprint(self.folder)
        (self.folder / "a.py").rename(self.folder / "b.py")
        moved = fingerprint(self.folder)
        self.write("c.json")
        self.assertEqual(len({before, moved, fingerprint(self.folder)}), 3)


    def test_files_that_are_left_alone_are_read_once(self) -> None:
        file = self.write("nodes/a.py", "x = 1")
        made, later = Fingerprints(), time.time_ns() + 10**10
        with mock.patch("comfyui_adapter.fingerprint.time.time_ns", return_value=later):
            first = made.get(self.folder, "fact")
            self.assertEqual(first, fingerprint(self.folder, "fact"))
            with mock.patch("builtins.open", side_effect=AssertionError("it is read again")):
                self.assertEqual(made.get(self.folder, "fact"), first)
            self.assertEqual(made.get(self.folder, "other"), fingerprint(self.folder, "other"))
            # The same size and the same time of writing: as after a copy.
            written = file.stat().st_mtime_ns
            file.write_text("x = 2")
            os.utime(file, ns=(written, written))
            self.assertEqual(made.get(self.folder, "fact"), fingerprint(self.folder, "fact"))
            self.assertNotEqual(made.get(self.folder, "fact"), first)
            self.write("nodes/b.py")
            self.assertEqual(made.get(self.folder, "fact"), fingerprint(self.folder, "fact"))

    def test_a_file_that_was_written_a_moment_ago_may_be_written_again_within_the_same_step_of_the_clock(self) -> None:
        file = self.write("a.py", "1")
        made = Fingerprints()
        first = made.get(self.folder)
        stamps = file.stat()
        file.write_text("2")
        with mock.patch("comfyui_adapter.fingerprint.os.stat", return_value=stamps):
            self.assertNotEqual(made.get(self.folder), first)

    def test_only_files_are_read(self) -> None:
        before = fingerprint(self.folder)
        os.mkfifo(self.folder / "pipe.py")
        self.write("elsewhere.txt")
        (self.folder / "elsewhere.txt").rename(self.folder / "elsewhere")
        (self.folder / "gone.py").symlink_to(self.folder / "nothing")
        self.assertEqual(fingerprint(self.folder), before)


class KeptScans(Folder):
    def test_a_scan_is_kept_whole_or_not_at_all(self) -> None:
        cache = ScanCache(self.folder / "scans")
        self.assertIsNone(cache.load("a"))
        cache.store("pack:nodes/x", Scan("f", {"nodes": [1]}))
        self.assertEqual(cache.load("pack:nodes/x"), Scan("f", {"nodes": [1]}))
        self.assertIsNone(cache.load("pack.nodes/x"))
        (file,) = (self.folder / "scans").iterdir()
        for text in ("", "{", "[]", '{"format": 99}'):
            file.write_text(text)
            self.assertIsNone(cache.load("pack:nodes/x"))

    def test_only_exactly_this_content_counts_but_the_old_one_stays(self) -> None:
        cache = ScanCache(self.folder)
        cache.store("p", Scan("old", {"a": 1}))
        made = Scans(cache, lambda environment: {"a": 2}, self.fail)
        wanted = Wanted("e", "p", "new")
        self.assertIsNone(made.cached(wanted))
        self.assertEqual(made.outdated(wanted), {"a": 1})
        self.assertEqual(made.result(wanted), {"a": 2})
        self.assertEqual(ScanCache(self.folder).load("p"), Scan("new", {"a": 2}))
        made.close()

    def test_scans_run_side_by_side_and_once(self) -> None:
        started: list[str] = []
        together = threading.Barrier(2, timeout=30)

        def scan(environment: str) -> dict[str, Any]:
            started.append(environment)
            together.wait()
            return {"environment": environment}

        before, scans.side_by_side = scans.side_by_side, lambda count: count
        self.addCleanup(setattr, scans, "side_by_side", before)
        made = Scans(ScanCache(self.folder), scan, self.fail)
        wanted = [Wanted("one", "1", "f"), Wanted("two", "2", "f")]
        made.begin(wanted)
        made.begin(wanted)
        self.assertEqual([made.result(item)["environment"] for item in wanted], ["one", "two"])
        self.assertEqual(sorted(started), ["one", "two"])
        made.close()

    def test_what_scanning_raises_reaches_the_pack(self) -> None:
        def scan(environment: str) -> dict[str, Any]:
            raise RuntimeError("its import fails")

        made = Scans(ScanCache(self.folder), scan, self.fail)
        with self.assertRaisesRegex(RuntimeError, "its import fails"):
            made.result(Wanted("e", "p", "f"))
        made.close()

    def test_a_scan_that_can_not_be_kept_is_used_all_the_same(self) -> None:
        said: list[str] = []
        self.write("taken")
        made = Scans(ScanCache(self.folder / "taken"), lambda environment: {"a": 1}, said.append)
        self.assertEqual(made.result(Wanted("e", "p", "f")), {"a": 1})
        self.assertEqual(len(said), 1)
        made.close()

    def test_never_more_at_once_than_cores(self) -> None:
        self.assertEqual(scans.side_by_side(0), 1)
        self.assertLessEqual(scans.side_by_side(1000), os.cpu_count() or 1)


class Hangs(Folder):
    def test_the_line_of_the_pack_and_what_it_waits_for(self) -> None:
        own, other = self.write("pack/nodes/a.py"), self.write("library/x.py")
        lines = [
            "Thread reader:",
            f'  File "{own}", line 9, in elsewhere',
            "Thread MainThread:",
            '  File "<frozen runpy>", line 1, in run',
            f'  File "{own}", line 3, in <module>',
            "    import x",
            f'  File "{other}", line 7, in wait',
        ]
        expected = f"nodes/a.py, line 3, in <module>, which was at {other}, line 7, in wait"
        self.assertEqual(stuck.place(lines, self.folder / "pack"), expected)
        self.assertEqual(stuck.place(lines[:6], self.folder / "pack"), "nodes/a.py, line 3, in <module>")
        self.assertEqual(stuck.place(lines[:3], self.folder / "pack"), "")
        self.assertEqual(stuck.place([], self.folder / "pack"), "")


class Environments(Folder):
    def find(self, manifest: str, module: str, *entries: dict[str, Any]) -> environments.Found:
        session = types.SimpleNamespace(environments=lambda: list(entries))
        link = types.SimpleNamespace(session=lambda: session)
        source = discovery.Source(Path(manifest).parent, Path(manifest), module)
        return environments.Environments(link).find(source)

    def test_what_is_not_built_is_named_where_a_pack_has_several(self) -> None:
        entry = {"name": "pack-fast", "stack": "py", "revision": "1", "manifest": "/pack/nodes/fast/comfy-env.toml"}
        self.assertEqual(self.find("/pack/nodes/fast/comfy-env.toml", "nodes.fast", entry), environments.Found("pack-fast", "py/1"))
        self.assertTrue(
            self.find("/pack/nodes/slow/comfy-env.toml", "nodes.slow", entry).problem.startswith(
                "the environment of nodes.slow is not built: run `"
            )
        )
        self.assertTrue(self.find("/a/nodes/comfy-env.toml", "nodes").problem.startswith("its environment is not built: run `"))

    def test_the_list_is_asked_for_once_and_again_for_what_is_not_on_it(self) -> None:
        link = mock.Mock()
        listed = link.session.return_value.environments
        listed.return_value = [{"name": name, "manifest": f"/{name}/nodes/comfy-env.toml", "revision": "1"} for name in "abc"]
        made = environments.Environments(link)

        def source(name: str) -> discovery.Source:
            return discovery.Source(Path(f"/{name}/nodes"), Path(f"/{name}/nodes/comfy-env.toml"), "nodes")

        self.assertEqual([made.find(source(name)).name for name in "abcab"], list("abcab"))
        self.assertEqual(made.find(source("d"), again=False).name, "")
        self.assertEqual(listed.call_count, 1)
        listed.return_value.append({"name": "d", "manifest": "/d/nodes/comfy-env.toml", "revision": "1"})
        self.assertEqual(made.find(source("d")).name, "d")
        self.assertEqual(listed.call_count, 2)

    def test_of_several_environments_for_one_manifest_the_first_that_can_be_used_counts(self) -> None:
        place = "/p/nodes/comfy-env.toml"
        entries = [
            {"name": "first", "manifest": place, "error": "its revision is gone"},
            {"name": "second", "stack": "py", "revision": "2", "manifest": "/p/../p/nodes/comfy-env.toml"},
            {"name": "third", "stack": "py", "revision": "3", "manifest": place},
        ]
        self.assertEqual(self.find(place, "nodes", *entries), environments.Found("second", "py/2"))
        self.assertEqual(self.find(place, "nodes", entries[0]).name, "first")

    def test_an_environment_with_an_error_says_what_it_is(self) -> None:
        entry = {"name": "p", "manifest": "/p/nodes/comfy-env.toml", "error": "another stack"}
        self.assertRegex(self.find("/p/nodes/comfy-env.toml", "nodes", entry).problem, "'p' can not be used: another stack; `.* build")


class OldNames(unittest.TestCase):
    def test_what_helper_packs_look_for_in_the_existing_launcher_is_an_import_error_and_nothing_else(self) -> None:
        with self.assertRaises(ImportError):
            from comfy_env.isolation.wrap import _WORKER_POOL  # noqa: F401

    def test_both_spellings_of_register_serializer_are_one(self) -> None:
        import comfy_env
        from comfy_env.isolation.workers._ipc_shared import register_serializer

        self.assertIs(comfy_env.register_serializer, register_serializer)


class Settings(unittest.TestCase):
    def test_durations_are_read_as_the_supervisor_reads_them(self) -> None:
        for text, seconds in (("20s", 20), ("1m30s", 90), ("5m0s", 300), ("45", 45), ("", 300), ("soon", 300), ("0", 300)):
            with mock.patch.dict(os.environ, COMFY_SUPERVISOR_SCAN=text):
                self.assertEqual(settings.scan_seconds(), seconds, text)

    def test_a_pack_has_its_own_fallback_before_the_general_one(self) -> None:
        own = Path("/packs/own/nodes/comfy-env.toml")
        for general, text, expected in (
            ("", "", False),
            ("host", "", True),
            ("host", '{"/packs/own/nodes/comfy-env.toml": "error"}', False),
            ("error", '{"/packs/own/nodes/../nodes/comfy-env.toml": "host"}', True),
            ("host", '{"/packs/other/nodes/comfy-env.toml": "error"}', True),
            ("host", "no JSON", True),
        ):
            with mock.patch.dict(os.environ, COMFY_SUPERVISOR_FALLBACK=general, COMFY_SUPERVISOR_FALLBACKS=text):
                self.assertEqual(settings.falls_back_to_host(own), expected, text)


class Assets(Folder):
    def test_assets_go_where_comfyui_has_its_folders(self) -> None:
        self.write("pack/assets/a.txt", "a")
        self.write("pack/assets/sub/b.txt", "b")
        pack, target = self.folder / "pack", self.folder / "elsewhere"
        with modules(folder_paths={"get_input_directory": lambda: str(target)}):
            self.assertEqual(copying.copy_into("assets", "input/3d", "**/*", False, pack), 2)
            self.assertEqual((target / "3d/sub/b.txt").read_text(), "b")
            self.assertEqual(copying.copy_into("assets", "input/3d", "**/*", False, pack), 0)
            self.assertEqual(copying.copy_into("assets", "input/3d", "*.txt", True, pack), 1)
        self.assertEqual(copying.copy_into("assets", "beside", "*", False, pack), 1)
        self.assertTrue((pack / "beside/a.txt").exists())
        self.assertEqual(copying.copy_into("nothing", "beside", "*", False, pack), 0)


class Serializers(Folder):
    def test_declared_types_without_a_serializer_are_said(self) -> None:
        self.write("comfy-env-root.toml", '[types]\nSHAPE = "custom"\nOTHER = "builtin"\n"A,B" = \'custom\'\n[node_packs]\nx = "custom"\n')
        self.assertEqual(serializers.custom_types(self.folder), ["SHAPE", "A,B"])
        with self.assertLogs(level=logging.ERROR) as said:
            serializers.load(self.folder)
        self.assertIn("SHAPE", said.output[0])

    def test_a_file_that_fails_or_registers_nothing_is_said(self) -> None:
        self.write("one/serialization.py", "import nothing_of_this_name")
        self.write("two/serialization.py", "x = 1")
        self.write("two/comfy-env-root.toml", '[types]\nSHAPE = "custom"\n')
        for name, text in (("one", "nothing_of_this_name"), ("two", "registers no serializer")):
            with self.assertLogs(level=logging.ERROR) as said:
                serializers.load(self.folder / name)
            self.assertIn(text, said.output[0])


class HostRoutes(unittest.TestCase):
    def test_a_duplicate_is_refused_with_a_line(self) -> None:
        server = Server()
        server.routes.route("GET", "/there")(None)

        async def ask(fields: Any, body: bytes) -> Any:
            return {}

        with modules(server={"PromptServer": types.SimpleNamespace(instance=server)}):
            with self.assertLogs(level=logging.WARNING) as said:
                count = hostroutes.register(
                    [["GET", "/there"], ["GET", "/new"], ["HEAD", "/new"], ["GET", "/new"]],
                    [["/files", "/tmp"], ["/files", "/tmp"]],
                    ask,
                    "pack",
                )
        self.assertEqual((count, len(said.output)), (3, 3))
        new = server.routes[1]
        self.assertEqual((new.method, new.path, new.options), ("GET", "/new", {"allow_head": False}))

    def test_without_a_server_there_are_no_routes(self) -> None:
        self.assertEqual(hostroutes.register([["GET", "/x"]], [], None, "pack"), 0)  # type: ignore[arg-type]


class Facts(unittest.TestCase):
    def test_what_a_host_says_of_itself(self) -> None:
        from enum import Enum

        class Kind(Enum):
            A = "a"

        arguments = types.SimpleNamespace(cpu=True, fast={Kind.A}, method=Kind.A, odd=object(), nan=float("nan"), pair=[("INFO", None)])
        registry = {"loras": (["/l"], {".b", ".a"})}
        named = {
            "comfy__cli_args": {"args": arguments},
            "comfy__model_management": {"EXTRA_RESERVED_VRAM": 0, "vram_state": types.SimpleNamespace(name="DISABLED")},
            "folder_paths": {"folder_names_and_paths": registry, "base_path": "/b", "models_dir": "/m", "__file__": "/c/folder_paths.py"},
        }
        with modules(**named):
            facts = hostfacts.facts()
        self.assertEqual(facts["args"], {"cpu": True, "fast": ["a"], "method": "a", "pair": [["INFO", None]]})
        self.assertEqual((facts["reserve_bytes"], facts["vram_state"], facts["comfyui_directory"]), (0, "DISABLED", "/c"))
        self.assertEqual(facts["folders"]["names"], {"loras": [["/l"], [".a", ".b"]]})
        self.assertEqual(hostfacts.folders(), {})

    def test_folders_of_a_pack_are_added(self) -> None:
        registry: dict[str, Any] = {"loras": (["/l"], {".a"})}
        with modules(folder_paths={"folder_names_and_paths": registry}):
            hostfacts.add_folders([["loras", ["/l", "/p"], [".a"]], ["own", ["/o"], [".x"]]])
        self.assertEqual(registry, {"loras": (["/l", "/p"], {".a"}), "own": (["/o"], {".x"})})


if __name__ == "__main__":
    unittest.main()
