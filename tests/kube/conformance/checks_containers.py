"""Logs of containers, and commands in them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import aiohttp
from tests.kube.conformance.ground import API, DOCS, Ground, check, pod

LOGS = f"{DOCS}reference/kubernetes-api/workload-resources/pod-v1/#get-read-log-of-the-specified-pod"
EXEC = f"{DOCS}reference/kubernetes-api/workload-resources/pod-v1/: exec over WebSocket"
KEP = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets"


@check("logs", cites=LOGS)
async def logs_are_read(ground: Ground) -> None:
    await ground.run_pod("talker", "one", "two")
    path = f"{ground.pods}/talker/log"

    async def is_there() -> bool:
        return (await ground.http.call("GET", path)).text == "one\ntwo\n"

    await ground.until("the log is there", is_there)
    answer = await ground.http.call("GET", path, container="none")
    answer.refused(400, "BadRequest", "container none is not valid for pod talker")
    await ground.create(ground.pods, pod("waiting", schedulerName="nobody"))
    answer = await ground.http.call("GET", f"{ground.pods}/waiting/log")
    assert answer.status in (200, 400), answer.status


async def _said(ground: Ground, *lines: str) -> str:
    await ground.run_pod("talker", *lines)
    path = f"{ground.pods}/talker/log"

    async def is_there() -> bool:
        return (await ground.http.call("GET", path)).text.count("\n") == len(lines)

    await ground.until("the log is there", is_there)
    return path


@check("log_tail", cites=f"{LOGS}: tailLines")
async def the_end_of_a_log_is_read(ground: Ground) -> None:
    path = await _said(ground, "one", "two", "three")
    assert (await ground.http.call("GET", path, tailLines="2")).text == "two\nthree\n"
    assert (await ground.http.call("GET", path, tailLines="0")).text == ""


@check("log_limit", cites=f"{LOGS}: limitBytes")
async def part_of_a_log_is_read(ground: Ground) -> None:
    path = await _said(ground, "one", "two", "three")
    assert (await ground.http.call("GET", path, limitBytes="5")).text == "one\nt"


@check("log_follow", cites=f"{LOGS}: follow", fake_only="the fake is told when its container speaks")
async def logs_are_followed(ground: Ground) -> None:
    path = await _said(ground, "one")
    url = f"{ground.http.server.url}{path}"
    async with ground.http.session.get(url, params={"follow": "true"}) as response:
        async with asyncio.timeout(ground.patience):
            assert await response.content.readline() == b"one\n"
        await ground.on_fake(lambda fake: fake.write_log("talker", "two\n", namespace=ground.namespace))
        async with asyncio.timeout(ground.patience):
            assert await response.content.readline() == b"two\n"


@check("log_previous", cites=f"{LOGS}: previous", fake_only="the fake is told when its container fails")
async def the_log_of_the_last_run_is_read(ground: Ground) -> None:
    path = await _said(ground, "one")
    answer = await ground.http.call("GET", path, previous="true")
    answer.refused(400, "BadRequest", 'previous terminated container "main" in pod "talker" not found')
    await ground.on_fake(lambda fake: fake.kubelet.restart("talker", namespace=ground.namespace))
    assert (await ground.http.call("GET", path, previous="true")).text == "one\n"
    assert (await ground.http.call("GET", path)).text == ""


async def _execute(
    ground: Ground, command: Sequence[str], send: bytes | None = None
) -> tuple[bytes, bytes, dict[str, object]]:
    """Run a command; return its output, its errors and how it ended."""
    query = [("command", word) for word in command]
    query += [("stdout", "true"), ("stderr", "true"), ("container", "main")]
    query += [("stdin", "true")] if send is not None else []
    url = f"{ground.http.server.url}{ground.pods}/shell/exec".replace("http", "ws", 1)
    out = {1: b"", 2: b"", 3: b""}
    async with (
        asyncio.timeout(ground.patience),
        ground.http.session.ws_connect(
            url, params=query, protocols=("v5.channel.k8s.io",), ssl=ground.http.server.ssl
        ) as socket,
    ):
        assert socket.protocol == "v5.channel.k8s.io"
        if send is not None:
            await socket.send_bytes(b"\0" + send)
            await socket.send_bytes(bytes([255, 0]))
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY and message.data:
                out[message.data[0]] += message.data[1:]
    found: dict[str, object] = json.loads(out[3])
    return out[1], out[2], found


@check("exec", cites=EXEC)
async def commands_run_in_containers(ground: Ground) -> None:
    await ground.run_pod("shell")
    try:
        out, _, end = await _execute(ground, ("echo", "a  b", "c"))
    except (aiohttp.ClientError, TimeoutError) as error:
        raise AssertionError(f"no command ran: {error}")
    assert out.split() == [b"echo", b"a", b"b", b"c"] or out == b"a  b c\n", out
    assert end["status"] == "Success"
    answer = await ground.http.call("GET", f"{ground.pods}/none/exec", command="true")
    assert answer.status in (400, 404)


@check("exec_exit_code", cites=f"{EXEC}; {API}: Status of reason NonZeroExitCode, cause ExitCode")
async def exit_codes_come_back(ground: Ground) -> None:
    await ground.run_pod("shell")
    _, _, end = await _execute(ground, ("false",))
    assert (end["status"], end.get("reason")) == ("Failure", "NonZeroExitCode"), end
    assert end["details"]["causes"] == [{"reason": "ExitCode", "message": "1"}]  # type: ignore[index]


@check("exec_close_input", cites=f"{KEP}: v5 ends standard input with channel 255")
async def standard_input_ends(ground: Ground) -> None:
    await ground.run_pod("shell")
    try:
        out, _, end = await _execute(ground, ("cat",), b"some text\n")
    except TimeoutError:
        raise AssertionError("the command still waits for input")
    assert out == b"some text\n" and end["status"] == "Success"
