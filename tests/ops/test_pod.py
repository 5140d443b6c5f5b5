"""The Kubernetes manifest: valid for Kubernetes, true to our settings, and each limit in order."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from sessions.chassis.refusals import stop_limit_s
from sessions.lending.probes import is_probe
from sessions.settings import PREFIX, Settings, read_settings
from tests.support.group import ROOT

OLDEST = "1.29"  # older ones are long out of support
NEWEST = kubernetes_validate.latest_version()
END_S = 5  # what a stop needs beyond its limit: kills, and the arbiter's own end


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    found = yaml.safe_load_all((ROOT / "ops/k8s/pod.yaml").read_text())
    return {document["kind"]: document for document in found}


@pytest.fixture(scope="module")
def pod(documents: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = documents["StatefulSet"]["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def container(pod: Mapping[str, Any]) -> dict[str, Any]:
    only: dict[str, Any]
    (only,) = pod["containers"]
    return only


@pytest.fixture(scope="module")
def environ(container: Mapping[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"]}


@pytest.fixture(scope="module")
def settings(environ: Mapping[str, str]) -> Settings:
    return read_settings(environ)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_document_is_valid_for_kubernetes(documents: Mapping[str, Any], version: str):
    assert set(documents) == {"Service", "StatefulSet"}
    for document in documents.values():
        kubernetes_validate.validate(document, version, strict=True)


def test_the_schema_would_find_a_wrong_field(documents: Mapping[str, Any]):
    broken = copy.deepcopy(documents["StatefulSet"])
    broken["spec"]["template"]["spec"]["containers"][0]["readinessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, NEWEST, strict=True)


def test_every_setting_is_known_and_within_its_range(
    environ: Mapping[str, str], settings: Settings
):
    assert all(name.startswith(PREFIX) for name in environ)
    assert settings.shards > 1
    assert settings.bind.startswith("0.0.0.0:")


def test_no_variable_of_a_service_can_look_like_a_setting(pod: Mapping[str, Any]):
    assert pod["enableServiceLinks"] is False


def test_probes_ask_probe_addresses_of_the_listener(
    container: Mapping[str, Any], settings: Settings
):
    (port,) = container["ports"]
    assert settings.bind.endswith(f":{port['containerPort']}")
    for name, path in (("startup", "/readyz"), ("readiness", "/readyz"), ("liveness", "/livez")):
        asked = container[f"{name}Probe"]["httpGet"]
        assert asked == {"path": path, "port": port["name"]}
        assert is_probe(path.encode())


def test_the_service_selects_the_pod(documents: Mapping[str, Any], container: Mapping[str, Any]):
    service, stateful = documents["Service"], documents["StatefulSet"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == stateful["selector"]["matchLabels"]
    assert stateful["serviceName"] == service["metadata"]["name"]
    assert stateful["replicas"] == 1
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]


def test_a_stop_has_the_time_that_it_may_take(pod: Mapping[str, Any], settings: Settings):
    assert pod["terminationGracePeriodSeconds"] >= stop_limit_s(settings) + END_S


def test_readiness_fails_before_the_drain_delay_is_over(
    container: Mapping[str, Any], settings: Settings
):
    probe = container["readinessProbe"]
    noticed_s = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    assert noticed_s <= settings.drain_delay_s


def test_a_boot_may_take_until_its_deadline(container: Mapping[str, Any], settings: Settings):
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= settings.boot_deadline_s


def test_the_container_runs_with_no_right_that_it_does_not_need(
    pod: Mapping[str, Any], container: Mapping[str, Any]
):
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_all_that_is_written_stands_in_a_mounted_folder(
    pod: Mapping[str, Any], container: Mapping[str, Any], settings: Settings
):
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume["emptyDir"] for volume in pod["volumes"]}
    assert set(mounts.values()) == set(volumes)
    assert {"/dev/shm", "/tmp"} < set(mounts)
    folder, _, name = settings.runtime_dir.rpartition("/")
    assert name, "the mounted folder itself is not private"
    assert folder in mounts
    assert volumes[mounts["/dev/shm"]]["medium"] == "Memory"
    assert all("sizeLimit" in volume for volume in volumes.values())


def test_memory_is_reserved_whole_and_cpu_for_every_member(
    container: Mapping[str, Any], settings: Settings
):
    requests, limits = container["resources"]["requests"], container["resources"]["limits"]
    assert requests["memory"] == limits["memory"]
    assert int(requests["cpu"]) == settings.worker_count
    assert "cpu" not in limits
