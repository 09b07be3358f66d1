"""Routes on ComfyUI's server, registered at import in three ways."""

import os

from aiohttp import web
from server import PromptServer

routes = PromptServer.instance.routes


@routes.get("/contract/hello/{name}")
async def hello(request):
    return web.json_response(
        {
            "name": request.match_info["name"],
            "query": dict(request.rel_url.query),
            "header": request.headers.get("X-Contract"),
            "path": request.path,
            "method": request.method,
        },
        headers={"X-Answer": "contract"},
    )


@routes.post("/contract/json")
async def echo_json(request):
    data = await request.json()
    return web.json_response({"got": data}, status=201)


@routes.post("/contract/raw")
async def echo_raw(request):
    return web.Response(body=(await request.read())[::-1], content_type="application/octet-stream")


@routes.post("/contract/form")
async def form(request):
    fields = await request.post()
    upload = fields["file"]
    return web.json_response(
        {"text": fields["text"], "name": upload.filename, "size": len(upload.file.read()), "type": upload.content_type}
    )


@routes.get("/contract/file")
async def file(request):
    return web.FileResponse(os.path.join(os.path.dirname(__file__), "served.txt"))


@routes.get("/contract/missing")
async def missing(request):
    raise web.HTTPNotFound(text="no such thing")


@routes.get("/contract/raises")
async def raises(request):
    raise RuntimeError("the handler failed")


def plain(request):
    return web.Response(text="plain")


PromptServer.instance.app.router.add_get("/contract/plain", plain)

routes.static("/contract/static", os.path.join(os.path.dirname(__file__), "static"))

table = web.RouteTableDef()


@table.put("/contract/table")
async def put(request):
    return web.Response(status=204)


PromptServer.instance.app.add_routes(table)


def _on_prompt(data):
    extra = data.get("extra_data") or {}
    if extra.get("contract_mark"):
        for node in data["prompt"].values():
            if node["class_type"] == "ContractUI":
                node["inputs"]["value"] = "changed on prompt"
    return data


PromptServer.instance.add_on_prompt_handler(_on_prompt)

NODES = {}
