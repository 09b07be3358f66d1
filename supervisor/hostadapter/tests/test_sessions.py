"""Sessions: hello, refusals, starting, losing and finding the supervisor again, forks."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from typing import Any
from unittest import mock

import comfy_supervisor
from broker import Broker
from comfy_supervisor import locations
from comfy_supervisor.wire.process import start_time
from support import LIMIT, PACKS, PROGRAM


class SessionCase(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "supervisor.sock")

    def broker(self, path: str = "") -> Broker:
        broker = Broker(path or self.path, PROGRAM)
        broker.environments["plain"] = (
            sys.executable,
            os.path.join(PACKS, "client", "nodes"),
            "",
            {},
        )
        self.addCleanup(broker.close)
        return broker

    def connect(self, **options: Any) -> comfy_supervisor.Session:
        session = comfy_supervisor.connect(self.path, **{"start": False, **options})
        self.addCleanup(session.close)
        return session


class Connecting(SessionCase):
    def test_hello_says_who_this_process_is(self) -> None:
        broker = self.broker()
        with mock.patch.dict(
            os.environ, {"COMFY_SUPERVISOR_HOST_FACTS": "/facts.json", "A_VARIABLE": "é"}
        ):
            os.environb[b"NOT_TEXT"] = b"\xff"
            session = self.connect(comfyui="/comfy", name="tests")
            del os.environ["NOT_TEXT"]
        hello = broker.last_hello
        self.assertEqual((hello["protocol"], hello["role"], hello["pid"]), (1, "host", os.getpid()))
        self.assertEqual(
            (hello["start_time"], hello["comfyui"]), (start_time(os.getpid()), "/comfy")
        )
        self.assertEqual(
            (hello["host_facts_file"], hello["environ"]["A_VARIABLE"]), ("/facts.json", "é")
        )
        self.assertNotIn("NOT_TEXT", hello["environ"])
        self.assertNotIn("token", hello)
        self.assertRegex(hello["name"], r"^tests/\S+ python 3\.")
        self.assertRegex(hello["owner"], "^[0-9a-f]{32}$")
        self.assertEqual(session.supervisor["pid"], os.getpid())
        self.assertNotIn(session._token, os.environ.values())

    def test_a_process_has_one_session(self) -> None:
        broker = self.broker()
        session = self.connect()
        self.assertIs(self.connect(), session)
        self.assertEqual(len(broker.clients), 1)
        session.close()
        self.assertIsNot(self.connect(), session)
        with self.assertRaisesRegex(comfy_supervisor.SupervisorGone, "closed"):
            session.call("plain", "Echo")

    def test_a_call_that_meets_the_end_of_its_connection_keeps_no_memory(self) -> None:
        self.broker()
        session = self.connect()
        for where in ("begin", "while_alive"):
            channel = session.channel()
            step = getattr(channel, where)

            def ending(*arguments: Any) -> Any:
                channel.close()
                return step(*arguments)

            setattr(channel, where, ending)
            data = bytes(2 << 20)
            self.assertEqual(session.call("plain", "Echo", value=data), {"value": data})
            self.assertIsNot(session.channel(), channel)
            self.assertEqual(session.memory.pool.sizes()["filling_bytes"], 0)

    def test_enormous_variables_do_not_keep_a_host_out(self) -> None:
        broker = self.broker()
        with mock.patch.dict(
            os.environ, {"ENORMOUS": "x" * 120_000, "TOO": "é" * 50_000, "SMALL": "1"}
        ):
            self.connect()
        self.assertEqual(broker.last_hello["environ"]["SMALL"], "1")
        self.assertNotIn("TOO", broker.last_hello["environ"])

    def test_refusals_are_clear(self) -> None:
        broker = self.broker()
        broker.refuse_hello = "the reason"
        with self.assertRaisesRegex(
            comfy_supervisor.SupervisorUnavailable, "refused this process: the reason"
        ):
            self.connect()
        broker.refuse_hello, broker.protocol = "", 99
        with self.assertRaisesRegex(
            comfy_supervisor.SupervisorUnavailable, "speaks protocol 99, this client 1"
        ):
            self.connect()
        broker.protocol = 1
        self.assertEqual(self.connect().call("plain", "Echo", x=1), {"x": 1})

    def test_a_supervisor_of_another_pid_namespace_is_refused(self) -> None:
        self.broker()
        from comfy_supervisor.wire.transport import SocketTransport

        for pid in (0, os.getpid() + 1):
            with mock.patch.object(SocketTransport, "peer_pid", lambda self: pid):
                with self.assertRaisesRegex(
                    comfy_supervisor.SupervisorUnavailable, "another PID namespace"
                ):
                    self.connect()

    def test_nobody_listens(self) -> None:
        with self.assertRaisesRegex(
            comfy_supervisor.SupervisorUnavailable, "no supervisor answers"
        ):
            self.connect()
        with mock.patch.dict(os.environ):
            os.environ.pop("COMFY_SUPERVISOR_BINARY", None)
            with self.assertRaisesRegex(
                comfy_supervisor.SupervisorUnavailable, "COMFY_SUPERVISOR_BINARY"
            ):
                self.connect(start=True)

    def test_a_socket_with_a_very_long_path(self) -> None:
        folder = os.path.join(self.folder.name, "f" * 120)
        os.mkdir(folder)
        descriptor = os.open(folder, os.O_RDONLY)
        self.addCleanup(os.close, descriptor)
        self.broker(f"/proc/self/fd/{descriptor}/s.sock")
        self.path = os.path.join(folder, "s.sock")
        self.assertGreater(len(self.path), 107)
        self.assertEqual(self.connect().call("plain", "Echo", x=1), {"x": 1})

    def test_connecting_loads_neither_numpy_nor_torch_nor_asyncio_nor_comfy_env(self) -> None:
        self.broker()
        script = (
            "import sys, comfy_supervisor\n"
            f"s = comfy_supervisor.connect({self.path!r}, start=False)\n"
            "s.call('plain', 'Echo', x=[1, 'a', b'c'])\n"
            "names = {name.partition('.')[0] for name in sys.modules}\n"
            "print(sorted(names & {'numpy', 'torch', 'asyncio', 'comfy_env', 'comfy'}))\n"
            "s.close()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT
        )
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("[]\n", "", 0))


class Starting(SessionCase):
    """`serve` is played by a script, which is started as the real one is."""

    def binary(self, body: str) -> str:
        path = os.path.join(self.folder.name, "comfy-supervisor")
        with open(path, "w") as file:
            file.write(f"#!{sys.executable}\n" + textwrap.dedent(body))
        os.chmod(path, stat.S_IRWXU)
        return path

    def environ(self, binary: str) -> Any:
        state = os.path.join(self.folder.name, "state")
        return mock.patch.dict(
            os.environ, {"COMFY_SUPERVISOR_BINARY": binary, "COMFY_SUPERVISOR_STATE_DIR": state}
        )

    def test_a_supervisor_is_started_detached_with_its_output_in_its_log(self) -> None:
        answer = os.path.join(self.folder.name, "answer")
        binary = self.binary(f"""
            import json, os, sys
            ready = int(sys.argv[sys.argv.index("--ready-fd") + 1])
            print("to the log", flush=True)
            alone = os.getsid(0) == os.getpid()
            facts = [sys.argv[1], os.getcwd(), alone, os.readlink("/proc/self/fd/0")]
            open({answer!r}, "w").write(json.dumps(facts))
            os.write(ready, b"error it does not want to\\n")
            """)
        with (
            self.environ(binary),
            self.assertRaisesRegex(comfy_supervisor.SupervisorUnavailable, "it does not want to"),
        ):
            self.connect(start=True)
        import json

        with open(answer) as file:
            self.assertEqual(json.load(file), ["serve", "/", True, "/dev/null"])
        log = os.path.join(self.folder.name, "state", "supervisor.log")
        with open(log) as file:
            self.assertEqual(file.read(), "to the log\n")
        self.assertEqual(stat.S_IMODE(os.stat(log).st_mode), 0o600)

    def test_one_that_ends_at_once_is_reported_with_its_log(self) -> None:
        with self.environ(self.binary("raise SystemExit(1)")):
            with self.assertRaisesRegex(
                comfy_supervisor.SupervisorUnavailable, "ended before it was ready; its log is"
            ):
                self.connect(start=True)
        with self.environ("/no/such/binary"):
            with self.assertRaisesRegex(comfy_supervisor.SupervisorUnavailable, "/no/such/binary"):
                self.connect(start=True)

    def test_one_that_another_host_has_just_started_is_used(self) -> None:
        broker = self.broker()
        broker.vanish()
        started = threading.Event()

        def start() -> None:
            broker.listen()
            started.set()

        binary = self.binary("""
            import os, sys
            ready = int(sys.argv[sys.argv.index("--ready-fd") + 1])
            os.write(ready, b"error already running: 4\\n")
            """)
        from comfy_supervisor import starting

        dial, refused = starting.dial, []

        def dialled(path: str) -> Any:
            try:
                return dial(path)
            except OSError as error:
                refused.append(error)
                if len(refused) == 3:  # it runs, says whoever asks, and now it listens as well
                    start()
                raise

        with self.environ(binary), mock.patch.object(starting, "dial", dialled):
            session = self.connect(start=True)
        self.assertEqual(len(refused), 3)
        self.assertTrue(started.is_set())
        self.assertEqual(session.call("plain", "Echo", x=1), {"x": 1})


class Losing(SessionCase):
    def test_calls_under_way_fail_clearly_and_the_next_one_works(self) -> None:
        broker = self.broker()
        session = self.connect()
        token, owner = session._token, session.memory.owner
        kept = session.call("plain", "Echo", value=b"x" * 3_000_000)
        waiting = os.path.join(self.folder.name, "never")
        call = session.start("plain", "WaitsAsync", path=waiting)
        caught: list[BaseException] = []

        def wait() -> None:
            try:
                call.result()
            except BaseException as error:
                caught.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        session.call("plain", "Sleeps", seconds=0.01)
        broker.vanish()
        thread.join(LIMIT)
        self.assertIsInstance(caught[0], comfy_supervisor.SupervisorGone)
        self.assertIn("went away during WaitsAsync", str(caught[0]))
        broker.listen()
        self.assertEqual(session.call("plain", "Echo", x=1), {"x": 1})
        self.assertEqual((broker.last_hello["token"], broker.last_hello["owner"]), (token, owner))
        self.assertEqual(session._token, token)
        self.assertEqual(len(kept["value"]), 3_000_000)

    def test_an_idle_session_finds_the_supervisor_again_by_itself(self) -> None:
        broker = self.broker()
        session = self.connect()
        session.call("plain", "Echo")
        broker.vanish()
        broker.last_hello = {}
        broker.listen()
        for _ in range(int(LIMIT / 0.02)):
            if broker.last_hello:
                break
            threading.Event().wait(0.02)
        self.assertEqual(broker.last_hello["token"], session._token)

    def test_without_a_supervisor_the_error_says_so(self) -> None:
        broker = self.broker()
        session = self.connect()
        broker.vanish()
        with self.assertRaises(comfy_supervisor.SupervisorError):
            session.call("plain", "Echo")
        broker.listen()
        self.assertEqual(session.call("plain", "Echo", x=1), {"x": 1})

    def test_memory_files_survive_a_reconnect(self) -> None:
        broker = self.broker()
        session = self.connect()
        session.call("plain", "Echo", value=b"x" * 3_000_000)
        broker.vanish()
        broker.listen()
        for _ in range(3):
            value = os.urandom(3_000_000)
            self.assertEqual(session.call("plain", "Echo", value=value)["value"], value)


class Forking(SessionCase):
    def test_a_forked_child_does_not_use_the_parents_connection(self) -> None:
        self.broker()
        session = self.connect()
        session.call("plain", "Echo")
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                session.call("plain", "Echo")
                said = "it worked"
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            try:
                own = comfy_supervisor.connect(self.path, start=False)
                said += f"; own {own is not session} {own.call('plain', 'Echo', x=2)}"
                own.close()
            except BaseException as error:
                said += f"; then {type(error).__name__}: {error}"
            os.write(writer, said.encode())
            os._exit(0)
        os.close(writer)
        said = b""
        while chunk := os.read(reader, 4096):
            said += chunk
        os.close(reader)
        os.waitpid(child, 0)
        self.assertIn(b"SupervisorGone: this session belongs to the parent process", said)
        self.assertIn(b"own True {'x': 2}", said)
        self.assertEqual(session.call("plain", "Echo", x=1), {"x": 1})


class Locations(unittest.TestCase):
    def test_the_socket_is_where_the_settings_have_it(self) -> None:
        cases: list[tuple[dict[str, str], str]] = [
            ({"COMFY_SUPERVISOR_SOCKET": "/s"}, "/s"),
            ({"COMFY_SUPERVISOR_RUNTIME_DIR": "/r"}, "/r/supervisor.sock"),
            ({"XDG_RUNTIME_DIR": "/x"}, "/x/comfy-supervisor/supervisor.sock"),
            (
                {"XDG_RUNTIME_DIR": "not/absolute", "COMFY_SUPERVISOR_STATE_DIR": "/st"},
                "/st/run/supervisor.sock",
            ),
            ({"XDG_STATE_HOME": "/xs"}, "/xs/comfy-supervisor/run/supervisor.sock"),
            ({"HOME": "/h"}, "/h/.local/state/comfy-supervisor/run/supervisor.sock"),
        ]
        for environ, expected in cases:
            with mock.patch.dict(os.environ, environ, clear=True):
                self.assertEqual(locations.socket_path(), expected)


if __name__ == "__main__":
    unittest.main()
