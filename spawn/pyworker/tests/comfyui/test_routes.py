"""Routes are recorded however a pack registers them, and answered without aiohttp."""

from __future__ import annotations

import asyncio
import tempfile
import unittest
from typing import Any

from comfy_supervisor_worker.comfyui import multipart, routes, web_standin
from comfy_supervisor_worker.comfyui.routetable import Application, RouteTable

web = web_standin.modules()["aiohttp.web"]


def request(method: str, route: str, **fields: Any) -> dict[str, Any]:
    return {
        "method": method,
        "route": route,
        "path": fields.get("path", route),
        "query": fields.get("query", ""),
        "headers": fields.get("headers", []),
        "match_info": fields.get("match_info", {}),
        "remote": "127.0.0.1",
        "scheme": "http",
    }


class Routes(unittest.TestCase):
    def setUp(self) -> None:
        self.table = RouteTable()
        self.app = Application(self.table)

    def answer(self, method: str, route: str, body: bytes = b"", **fields: Any) -> dict[str, Any]:
        return asyncio.run(routes.answer(self.table, self.app, request(method, route, **fields), body))

    def test_every_way_to_register(self) -> None:
        async def handler(_: Any) -> Any:
            return web.Response(text="ok")

        self.table.get("/a")(handler)
        self.table.route("PATCH", "/b")(handler)
        self.app.router.add_post("/c", handler)
        self.app.add_routes([web.put("/d", handler), web.static("/files", "/tmp")])
        other = web.RouteTableDef()
        other.delete("/e")(handler)
        self.app.add_routes(other)
        described = self.table.describe()
        self.assertEqual(
            described["routes"], [["GET", "/a"], ["PATCH", "/b"], ["POST", "/c"], ["PUT", "/d"], ["DELETE", "/e"]]
        )
        self.assertEqual(described["statics"], [["/files", "/tmp"]])
        for method, route in described["routes"]:
            self.assertEqual(self.answer(method, route)["body"], b"ok")
        self.assertEqual(self.answer("HEAD", "/a")["status"], 200)
        self.assertEqual(self.answer("POST", "/a")["status"], 404)

    def test_what_a_handler_sees_of_its_request(self) -> None:
        @self.table.post("/x/{name}")
        async def handler(request: Any) -> Any:
            return web.json_response(
                {
                    "json": await request.json(),
                    "name": request.match_info["name"],
                    "all": request.query.getall("a"),
                    "header": request.headers["x-one"],
                    "cookie": request.cookies["c"],
                    "path": request.path_qs,
                },
                status=201,
                headers={"X-Back": "1"},
            )

        answer = self.answer(
            "POST",
            "/x/{name}",
            b'{"n": 1}',
            path="/x/y%20z",
            query="a=1&a=2",
            headers=[["X-One", "1"], ["Cookie", "c=d; e=f"]],
            match_info={"name": "y z"},
        )
        self.assertEqual(answer["status"], 201)
        self.assertIn(["X-Back", "1"], answer["headers"])
        self.assertEqual(
            answer["body"],
            b'{"json": {"n": 1}, "name": "y z", "all": ["1", "2"], "header": "1", "cookie": "d", "path": "/x/y%20z?a=1&a=2"}',
        )

    def test_forms_with_files(self) -> None:
        @self.table.post("/form")
        async def handler(request: Any) -> Any:
            fields = await request.post()
            upload = fields["f"]
            return web.json_response([fields["t"], upload.filename, upload.content_type, upload.file.read().hex()])

        body = (
            b'--B"\r\nContent-Disposition: form-data; name="t"\r\n\r\ntext\r\n--B"\r\n'
            b'Content-Disposition: form-data; name="f"; filename="a\\"b.bin"\r\nContent-Type: x/y\r\n\r\n\r\n\x00\r\n\r\n--B"--\r\n'
        )
        answer = self.answer("POST", "/form", body, headers=[["Content-Type", 'multipart/form-data; boundary="B\\""']])
        self.assertEqual(answer["body"], b'["text", "a\\"b.bin", "x/y", "0d0a000d0a"]')

    def test_bodies_that_are_no_forms_are_refused(self) -> None:
        for body, kind in ((b"x", "text/plain"), (b"--B\r\nno end", "multipart/form-data; boundary=B"), (b"", "multipart/x")):
            with self.assertRaises(ValueError):
                multipart.parse(body, kind)
        self.assertEqual(multipart.parse(b"", "multipart/form-data; boundary=B"), [])

    def test_errors_become_answers(self) -> None:
        @self.table.get("/raises")
        async def raises(_: Any) -> Any:
            raise RuntimeError("inside")

        @self.table.get("/missing")
        async def missing(_: Any) -> Any:
            raise web.HTTPNotFound(text="not here")

        @self.table.get("/moved")
        async def moved(_: Any) -> Any:
            raise web.HTTPFound("/there")

        @self.table.get("/nothing")
        def nothing(_: Any) -> Any:
            return None

        @self.table.get("/stream")
        async def stream(request: Any) -> Any:
            response = web.StreamResponse()
            await response.prepare(request)

        self.assertEqual(self.answer("GET", "/raises")["status"], 500)
        self.assertEqual((self.answer("GET", "/missing")["status"], self.answer("GET", "/missing")["body"]), (404, b"not here"))
        self.assertIn(["Location", "/there"], self.answer("GET", "/moved")["headers"])
        self.assertEqual(self.answer("GET", "/nothing")["status"], 500)
        self.assertIn(b"stream", self.answer("GET", "/stream")["body"])

    def test_files_go_by_their_path(self) -> None:
        with tempfile.NamedTemporaryFile(suffix=".txt") as file:

            @self.table.get("/file")
            async def handler(_: Any) -> Any:
                return web.FileResponse(file.name)

            self.assertEqual(self.answer("GET", "/file")["file"], file.name)
        self.assertEqual(self.answer("GET", "/file")["status"], 404)

    def test_class_based_views(self) -> None:
        class View:
            def __init__(self, request: Any) -> None:
                self.request = request

            async def get(self) -> Any:
                return web.Response(text=self.request.path)

        self.table.view("/view")(View)
        self.assertEqual(self.answer("GET", "/view")["body"], b"/view")
        self.assertEqual(self.answer("POST", "/view")["status"], 405)


if __name__ == "__main__":
    unittest.main()
