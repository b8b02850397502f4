"""The status page of a server, as JSON and as metrics."""

import json

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from . import client


def read_status(server, path="/status"):
    response = client.fetch(server.port, f"{path}?format=json")
    assert response.status == 200
    assert response.header("Content-Type") == "application/json"
    assert response.header("Cache-Control") == "no-store"
    return json.loads(response.decoded)


def metrics(server, path="/status"):
    """Metrics by name and labels, read by Prometheus's own parser."""
    response = client.fetch(server.port, f"{path}?format=prometheus")
    assert response.header("Content-Type").startswith("application/openmetrics-text; version=1.0.0")
    families = text_string_to_metric_families(response.decoded.decode())
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }
