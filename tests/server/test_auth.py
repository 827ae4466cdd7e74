"""API keys: who gets in, and what is never written down."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from octavo.errors import InvalidRequestError
from octavo.server.auth import PUBLIC_PATHS
from octavo.server.settings import ServerSettings
from support.live_server import LiveServer

KEYS = ("first-key-Zq81", "second-key-Zq82")


@pytest.fixture(scope="module")
def guarded(start: Callable[..., LiveServer]) -> LiveServer:
    return start(settings={"api_keys": KEYS})


def all_paths(server: LiveServer) -> set[str]:
    paths = {route.path for route in server.app.routes if hasattr(route, "path")}
    assert {"/v1/completions", "/v1/chat/completions", "/metrics", "/tokenize", "/openapi.json"} <= paths
    return paths


def test_se_01_every_route_but_liveness_asks_for_a_key(guarded: LiveServer) -> None:
    for path in all_paths(guarded) - PUBLIC_PATHS:
        path = path.replace("{model:path}", "scripted")
        for variant in (path, f"/{path}", path.upper(), f"{path}/", f"{path}?key={KEYS[0]}", f"/x/..{path}", path.replace("/", "/%2e/", 1)):
            for method in ("GET", "POST", "OPTIONS"):
                for given in ("", "Bearer wrong", "Bearer", KEYS[0], f"Basic {KEYS[0]}"):
                    response = guarded.client.request(method, guarded.url + variant, headers={"Authorization": given})
                    assert response.status_code == 401, (method, variant, given)
    for path in PUBLIC_PATHS:
        assert guarded.client.get(path, headers={"Authorization": ""}).status_code == 200


def test_se_01_liveness_paths_are_matched_exactly(guarded: LiveServer) -> None:
    for path in ("/health/", "//health", "/Health", "/health/../metrics", "/ping/x"):
        assert guarded.client.get(guarded.url + path, headers={"Authorization": ""}).status_code == 401


@pytest.mark.parametrize("key", KEYS)
def test_every_key_works(guarded: LiveServer, key: str) -> None:
    for scheme in ("Bearer", "bearer"):
        response = guarded.client.get("/v1/models", headers={"Authorization": f"{scheme} {key}"})
        assert response.status_code == 200


def test_error_has_openais_shape(guarded: LiveServer) -> None:
    response = guarded.client.get("/v1/models", headers={"Authorization": "Bearer wrong"})
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"
    assert "wrong" not in response.text


def test_se_14_keys_are_never_logged(guarded: LiveServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    caplog.set_level("DEBUG")
    guarded.client.get("/v1/models", headers={"Authorization": "Bearer wrong-key-Zq83"})
    guarded.client.get("/v1/models", headers={"Authorization": f"Bearer {KEYS[0]}"})
    written = caplog.text + "".join(capfd.readouterr())
    assert "Zq8" not in written
    assert "Zq8" not in repr(ServerSettings(served_model_names=("m",), api_keys=KEYS))


def test_an_empty_key_is_no_key() -> None:
    with pytest.raises(InvalidRequestError, match="api_key is empty"):
        ServerSettings(served_model_names=("m",), api_keys=("",))


def test_without_keys_nothing_is_asked(server: LiveServer) -> None:
    assert server.client.get("/v1/models").status_code == 200
