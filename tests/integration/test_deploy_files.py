"""The files in deploy/envoy, each checked by the program that will read it."""

from __future__ import annotations

import configparser
import dataclasses
import ipaddress
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.config import Settings, load
from controlplane.model.strategy import Strategy
from tests.support.process import ROOT, find_tool

DEPLOY = ROOT / "deploy" / "envoy"
BOOTSTRAPS = ("bootstrap-sidecar.yaml", "bootstrap-gateway.yaml")
HAS_NO_DEFAULT = {"consul.token_file", "prometheus.bearer_token_file"}


def run(*command: str | Path, cwd: Path = DEPLOY) -> str:
    """Run a program that must accept what it is given; its words are the failure's message."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def read_yaml(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


@pytest.mark.envoy
@pytest.mark.parametrize("name", BOOTSTRAPS)
def test_envoy_accepts_the_bootstraps_without_deprecated_fields(name: str) -> None:
    output = run(find_tool("envoy"), "--mode", "validate", "-c", DEPLOY / name)
    assert "deprecated" not in output.lower()


@pytest.mark.parametrize("name", BOOTSTRAPS)
def test_bootstraps_ask_over_delta_ads_with_keepalive_and_a_loopback_admin(name: str) -> None:
    bootstrap = read_yaml(name)
    ads = bootstrap["dynamic_resources"]["ads_config"]
    assert (ads["api_type"], ads["set_node_on_first_message_only"]) == ("DELTA_GRPC", True)
    by_name = {cluster["name"]: cluster for cluster in bootstrap["static_resources"]["clusters"]}
    control_plane = by_name[ads["grpc_services"][0]["envoy_grpc"]["cluster_name"]]
    (options,) = control_plane["typed_extension_protocol_options"].values()
    http2 = options["explicit_http_config"]["http2_protocol_options"]
    assert http2["connection_keepalive"]["interval"] == "30s"
    (endpoint,) = control_plane["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert endpoint["endpoint"]["address"]["socket_address"]["port_value"] == Settings().xds.port
    assert bootstrap["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"
    assert set(bootstrap["node"]) == {"id", "cluster", "locality"}


@pytest.mark.prometheus
def test_promtool_accepts_the_configuration_and_the_rules_it_names() -> None:
    promtool = find_tool("promtool")
    run(promtool, "check", "config", DEPLOY / "prometheus.yml")
    run(promtool, "check", "rules", DEPLOY / "alerts.yml")
    jobs = {job["job_name"] for job in read_yaml("prometheus.yml")["scrape_configs"]}
    assert jobs == {"trimtab", "envoy", "vllm", "dcgm"}


def alert_rules() -> list[dict[str, Any]]:
    (group,) = read_yaml("alerts.yml")["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def test_the_alerts_list_the_metrics_they_use_at_their_top() -> None:
    heading = (DEPLOY / "alerts.yml").read_text("utf-8").partition("groups:")[0]
    name = re.compile(r"\btrimtab_\w+|\bup\b")
    used = {found for rule in alert_rules() for found in name.findall(rule["expr"])}
    listed = {
        found for line in heading.splitlines() if line.startswith("#   ") for found in name.findall(line)
    }
    assert used == listed


SERIES = {
    "TrimtabDown": ('up{job="trimtab"}', "0x30"),
    "TrimtabNotReady": ("trimtab_ready", "0x30"),
    "TrimtabSourceDegraded": ('trimtab_source_degraded{source="consul"}', "1x30"),
    "TrimtabDecisionsStopped": ('trimtab_decision_age_seconds{service="chat"}', "0+60x30"),
    "TrimtabConfigurationRefusedByEnvoy": ('trimtab_xds_nacks_total{type="rds"}', "0 0+1x29"),
    "TrimtabDocumentRejected": ('trimtab_documents_rejected_total{kind="strategies"}', "0 0+1x29"),
    "TrimtabPlanNotBuildable": ('trimtab_build_failures_total{service="chat"}', "0 0+1x29"),
    "TrimtabStoreDegraded": ("trimtab_store_degraded", "1x30"),
    "TrimtabUnexpectedError": ('trimtab_unexpected_errors_total{part="tick"}', "0 0+1x29"),
    "TrimtabCanaryRolledBack": ('trimtab_canary_phase{service="chat",phase="rolled_back"}', "1x30"),
}
QUIET = {
    'up{job="trimtab"}': "1x30",
    "trimtab_ready": "1x30",
    'trimtab_source_degraded{source="consul"}': "0x30",
    'trimtab_decision_age_seconds{service="chat"}': "5x30",
    'trimtab_xds_nacks_total{type="rds"}': "7x30",
    'trimtab_canary_phase{service="chat",phase="promoted"}': "1x30",
    'trimtab_canary_phase{service="chat",phase="rolled_back"}': "0x30",
}


def rule_test(series: dict[str, str], firing: str | None) -> dict[str, Any]:
    """Describe one world to `promtool test rules`: which alert fires in it, and that no other does."""
    expected = []
    for rule in alert_rules():
        alerts = []
        if rule["alert"] == firing:
            (name,) = series
            labels = dict(re.findall(r'(\w+)="([^"]*)"', name)) | rule["labels"]
            alerts = [{"exp_labels": labels}]
        expected.append({"eval_time": "20m", "alertname": rule["alert"], "exp_alerts": alerts})
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": "1m", "input_series": inputs, "alert_rule_test": expected}


@pytest.mark.prometheus
def test_each_alert_fires_in_its_world_alone_and_none_in_a_quiet_one(tmp_path: Path) -> None:
    rules = [{key: value for key, value in rule.items() if key != "annotations"} for rule in alert_rules()]
    assert {rule["alert"] for rule in rules} == set(SERIES)
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "trimtab", "rules": rules}]}))
    worlds = [rule_test({series: values}, alert) for alert, (series, values) in SERIES.items()]
    worlds.append(rule_test(QUIET, None))
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": worlds}))
    run(find_tool("promtool"), "test", "rules", "test.yml", cwd=tmp_path)


def consul_accepts(services: str, folder: Path) -> list[dict[str, Any]]:
    """Let Consul validate service definitions, and give them."""
    (folder / "services.json").write_text(services, "utf-8")
    (folder / "agent.json").write_text(json.dumps({"data_dir": str(folder / "data")}), "utf-8")
    run(find_tool("consul"), "validate", folder / "agent.json", folder / "services.json")
    found: list[dict[str, Any]] = json.loads(services)["services"]
    return found


@pytest.mark.consul
def test_consul_accepts_the_services_and_watches_trimtab_s_readiness(tmp_path: Path) -> None:
    trimtab, server = consul_accepts((DEPLOY / "consul-service.json").read_text("utf-8"), tmp_path)
    assert trimtab["port"] == Settings().xds.port
    assert trimtab["checks"][0]["http"] == f"http://127.0.0.1:{Settings().admin.port}/readyz"
    assert {"zone", "gpu", "version"} <= set(server["meta"])


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "trimtab.service").read_text("utf-8")
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(text)
    start = unit["Service"]["ExecStart"]
    assert start.split()[1:] == ["serve", "--config", "/etc/trimtab/trimtab.toml"]
    assert float(unit["Service"]["TimeoutStopSec"]) > Settings().loop.shutdown_grace_seconds
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    # Only the program is replaced: the real one is not installed where tests run.
    (tmp_path / "trimtab.service").write_text(text.replace(start.split()[0], "/bin/true"), "utf-8")
    assert run(analyze, "verify", tmp_path / "trimtab.service") == ""
    report = run(analyze, "security", "--offline=true", "--threshold=20", tmp_path / "trimtab.service")
    assert "Overall exposure" in report


def test_the_settings_file_loads_and_mentions_every_setting_with_its_default(tmp_path: Path) -> None:
    file = DEPLOY / "trimtab.toml"
    load(file=file)
    text = file.read_text("utf-8")
    shown = tomllib.loads(re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE))
    chosen = tomllib.loads(text)
    default = Settings()
    for table in dataclasses.fields(Settings):
        section = getattr(default, table.name)
        names = {field.name for field in dataclasses.fields(section)}
        assert set(shown[table.name]) == names, f"[{table.name}]"
        for name in sorted(names - set(chosen.get(table.name, {}))):
            if f"{table.name}.{name}" not in HAS_NO_DEFAULT:
                value = getattr(section, name)
                expected = (
                    list(value)
                    if isinstance(value, tuple)
                    else str(value)
                    if isinstance(value, Path)
                    else value
                )
                assert shown[table.name][name] == expected, f"{table.name}.{name}"
    (tmp_path / "all.toml").write_text(re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE), "utf-8")
    load(file=tmp_path / "all.toml")


def test_compose_refers_only_to_what_there_is() -> None:
    compose = read_yaml("compose.yaml")
    assert set(compose["services"]) == {
        "consul",
        "strategy",
        "prometheus",
        "trimtab",
        "envoy",
        "sim-1",
        "sim-2",
    }
    for service in compose["services"].values():
        assert set(service["networks"]) <= set(compose["networks"])
        assert set(service.get("depends_on", ())) <= set(compose["services"])
        assert {each["source"] for each in service.get("configs", ())} <= set(compose["configs"])
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).is_file(), volume
    build = compose["services"]["trimtab"]["build"]
    context = (DEPLOY / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]).is_file()


def test_compose_s_settings_are_settings_and_its_names_are_allowed() -> None:
    compose = read_yaml("compose.yaml")
    settings = load(file=DEPLOY / "trimtab.toml", environment=compose["services"]["trimtab"]["environment"])
    assert settings.xds.is_plaintext_allowed
    for address in (settings.consul.address, settings.prometheus.url.removeprefix("http://")):
        assert address.partition(":")[0] in compose["services"]
    scraped = {
        target
        for job in read_yaml("prometheus.yml")["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    }
    assert f"trimtab:{settings.admin.port}" in scraped
    assert "trimtab" in settings.admin.allowed_hosts
    fixed = {
        network["ipv4_address"]
        for service in compose["services"].values()
        if isinstance(service["networks"], dict)
        for network in service["networks"].values()
    }
    for target in scraped:
        host = target.partition(":")[0]
        assert host in compose["services"] or host in fixed, target
    (subnet,) = compose["networks"]["mesh"]["ipam"]["config"]
    assert all(ipaddress.ip_address(each) in ipaddress.ip_network(subnet["subnet"]) for each in fixed)


@pytest.mark.consul
def test_compose_s_consul_configuration_is_valid_and_its_strategy_too(tmp_path: Path) -> None:
    compose = read_yaml("compose.yaml")
    services = consul_accepts(compose["configs"]["model-servers"]["content"], tmp_path)
    addresses = {f"{each['address']}:{each['port']}" for each in services}
    (vllm,) = [job for job in read_yaml("prometheus.yml")["scrape_configs"] if job["job_name"] == "vllm"]
    assert addresses == set(vllm["static_configs"][0]["targets"])
    *_, key, document = compose["services"]["strategy"]["command"]
    assert key == f"{Settings().consul.prefix}strategies/{services[0]['name']}"
    assert Strategy(**json.loads(document)).version == "1.0.0"


def test_the_image_is_made_of_files_that_exist() -> None:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    copied = {
        source
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    }
    assert copied
    assert all((ROOT / source).exists() for source in copied)
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert copied == {line.removeprefix("!") for line in kept if line.startswith("!")}


def test_the_folder_s_page_names_every_file() -> None:
    page = (DEPLOY / "README.md").read_text("utf-8")
    named = set(re.findall(r"\]\(([^)]+)\)", page))
    assert named == {file.name for file in DEPLOY.iterdir()} - {"README.md", "Dockerfile.dockerignore"}
