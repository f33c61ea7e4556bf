"""The manifest of `deploy/kuberay/` fits itself, names existing options, and follows the schema of KubeRay."""

import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.docs.pages import ROOT
from tests.support.cli import aici

MANIFEST = ROOT / "deploy" / "kuberay" / "ray-cluster.yaml"
CRD = os.environ.get("AICI_RAYCLUSTER_CRD")
"""KubeRay's file ray.io_rayclusters.yaml."""


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    return read


def pods(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    groups = [manifest["spec"]["headGroupSpec"], *manifest["spec"]["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def script(pod: dict[str, Any]) -> str:
    [container] = pod["containers"]
    return str(container["args"][0])


@pytest.mark.parametrize(("number", "command"), [(0, ("serve",)), (1, ("node", "join"))])
def test_options_exist(manifest: dict[str, Any], number: int, command: tuple[str, ...]) -> None:
    said = script(pods(manifest)[number])
    assert f"aici {' '.join(command)} " in said
    known = aici(*command, "--help").stdout
    for option in re.findall(r"--[a-z-]+", said):
        assert f"{option} " in known, option


def test_the_server_waits_for_as_many_nodes_as_there_are(manifest: dict[str, Any]) -> None:
    [group] = manifest["spec"]["workerGroupSpecs"]
    assert f"--min-nodes {group['replicas']} " in script(pods(manifest)[0])
    assert group["minReplicas"] == group["replicas"] == group["maxReplicas"]


def test_the_ports_of_the_head_are_those_of_the_commands(manifest: dict[str, Any]) -> None:
    server, node = pods(manifest)
    ports = {each["name"]: each["containerPort"] for each in server["containers"][0]["ports"]}
    assert f'"$POD_IP:{ports["gcs-server"]}"' in script(server)
    assert f'"$FQ_RAY_IP:{ports["gcs-server"]}"' in script(node)
    assert f"--port {ports['api']} " in script(server)


def test_no_pod_is_root_and_every_secret_is_mounted(manifest: dict[str, Any]) -> None:
    for pod in pods(manifest):
        assert pod["securityContext"]["runAsNonRoot"]
        [container] = pod["containers"]
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        volumes = {each["name"] for each in pod["volumes"]}
        assert {each["name"] for each in container["volumeMounts"]} == volumes
        secrets = next(each["projected"]["sources"] for each in pod["volumes"] if each["name"] == "secrets")
        needed = {"cluster-token": "aici-cluster-token", "keys.toml": "aici-keys"}
        names = {needed[name] for name in needed if f"/etc/aici/secrets/{name}" in script(pod)}
        assert {each["secret"]["name"] for each in secrets} == names


def test_the_pod_lives_longer_than_the_drain(manifest: dict[str, Any]) -> None:
    server = pods(manifest)[0]
    drain = re.search(r"--drain-timeout (\d+)", script(server))
    assert drain
    assert server["terminationGracePeriodSeconds"] > int(drain[1])


@pytest.mark.skipif(CRD is None, reason="AICI_RAYCLUSTER_CRD names no file of KubeRay")
def test_the_schema_of_kuberay_allows_the_manifest(manifest: dict[str, Any]) -> None:
    assert CRD is not None
    definition = yaml.safe_load(Path(CRD).read_text())
    version = manifest["apiVersion"].partition("/")[2]
    [schema] = [each for each in definition["spec"]["versions"] if each["name"] == version]
    strict = _closed(schema["schema"]["openAPIV3Schema"])
    jsonschema.validate(manifest, strict)


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that refuses unknown fields. An API server drops unknown fields without a word."""
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {name: _closed(each) for name, each in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields") and schema["properties"].keys() != {"metadata"}:
            closed.setdefault("additionalProperties", False)
    if isinstance(schema.get("items"), dict):
        closed["items"] = _closed(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        closed["additionalProperties"] = _closed(schema["additionalProperties"])
    if schema.get("x-kubernetes-int-or-string"):
        closed.pop("type", None)
    return closed
