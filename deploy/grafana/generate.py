#!/usr/bin/env python3
"""Makes Grafana's dashboards of spec.py, and the rule file by which promtool checks their expressions.

  generate.py            writes dashboards/*.json beside this file
  generate.py --check    exit 1 where a file is not what would be written
  generate.py --rules    prints every expression as a recording rule
"""

import argparse
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from spec import ANNOTATIONS, DASHBOARDS  # noqa: E402

SCHEMA_VERSION = 38  # of Grafana 10; newer ones read it
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Values of the variables in an expression that is checked or evaluated without Grafana.
EVERYTHING = {"$run": ".*", "$cluster": ".*"}


def plain(expression):
    """The expression with every variable meaning everything."""
    for name, value in EVERYTHING.items():
        expression = expression.replace(name, value)
    return expression


def expressions():
    """(dashboard, panel, expression) of all queries, variables replaced; also of annotations and variables."""
    return [(dashboard.title, what, plain(expression))
            for dashboard in DASHBOARDS for what, expression in asked_by(dashboard)]


def asked_by(dashboard):
    found = [(panel.title, query.expr) for panel in dashboard.panels for query in panel.queries]
    found += [(f"annotation {one['name']}", one["expr"]) for one in annotations(dashboard)]
    found += [(f"variable {one['name']}", re.fullmatch(r"label_values\((.*), \w+\)", one["definition"])[1])
              for one in variables(dashboard) if one["type"] == "query"]
    return found


def variable(name, label, query):
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE,
            "query": {"query": query, "refId": name}, "definition": query, "refresh": 2, "sort": 1,
            "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"text": "All", "value": "$__all"}}


def variables(dashboard):
    found = [{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
             variable("cluster", "Cluster", "label_values(muster_build_info, cluster)")]
    if dashboard.run_variable:
        found.append(variable("run", "Run", 'label_values(muster_job_info{cluster=~"$cluster"}, job_id)'))
    return found


def thresholds(panel):
    steps = [{"color": "green", "value": None}]
    steps += [{"color": colour, "value": value} for value, colour in panel.thresholds]
    return {"mode": "absolute", "steps": steps}


def custom(panel):
    if panel.kind != "timeseries":
        return {}
    return {"lineWidth": 1, "fillOpacity": 20 if panel.stack else 0, "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stack else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if panel.thresholds else "off"}}


def options(panel):
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "colorMode": "value", "graphMode": "area", "textMode": "auto"}
    if panel.kind == "heatmap":
        return {"calculate": False, "yAxis": {"axisPlacement": "left"},
                "cellGap": 0, "color": {"mode": "scheme", "scheme": "Spectral", "reverse": True},
                "rowsFrame": {"layout": "auto"}, "tooltip": {"show": True}}
    if panel.kind == "state-timeline":
        return {"showValue": "never", "mergeValues": True, "legend": {"displayMode": "hidden"}}
    return {"legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"}}


def defaults(panel):
    made = {"unit": panel.unit, "thresholds": thresholds(panel), "custom": custom(panel)}
    if panel.minimum is not None:
        made["min"] = panel.minimum
    if panel.maximum is not None:
        made["max"] = panel.maximum
    return made


def targets(panel):
    return [{"refId": chr(ord("A") + index), "datasource": DATASOURCE, "expr": query.expr,
             "legendFormat": query.legend or "__auto", "instant": panel.kind == "table"}
            for index, query in enumerate(panel.queries)]


def panels(dashboard):
    """From left to right, a new row where the next one does not fit."""
    made, x, y, row = [], 0, 0, 0
    for number, panel in enumerate(dashboard.panels, 1):
        if x + panel.width > 24:
            x, y, row = 0, y + row, 0
        made.append({"id": number, "type": panel.kind, "title": panel.title, "description": panel.about,
                     "datasource": DATASOURCE,
                     "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
                     "fieldConfig": {"defaults": defaults(panel), "overrides": []},
                     "options": options(panel), "targets": targets(panel)})
        x, row = x + panel.width, max(row, panel.height)
    return made


def annotations(dashboard):
    """Where the dashboard is of runs: what they have is marked in each panel."""
    return [{"name": name, "datasource": DATASOURCE, "enable": True, "iconColor": colour, "expr": expression,
             "step": "15s", "titleFormat": text}
            for name, colour, expression, text in (ANNOTATIONS if dashboard.run_variable else ())]


def dashboard_json(dashboard):
    made = {"uid": dashboard.uid, "title": dashboard.title, "description": dashboard.about,
            "tags": ["muster"], "schemaVersion": SCHEMA_VERSION, "version": 1, "editable": True,
            "refresh": "15s", "time": {"from": "now-3h", "to": "now"}, "timezone": "",
            "templating": {"list": variables(dashboard)},
            "annotations": {"list": annotations(dashboard)},
            "links": [{"type": "dashboards", "tags": ["muster"], "title": "Muster", "asDropdown": True,
                       "includeVars": True, "keepTime": True}],
            "panels": panels(dashboard)}
    return json.dumps(made, indent=1) + "\n"


def rules():
    """JSON is YAML; a rule's name says where its expression is from."""
    made = [{"record": f"panel:{number}", "expr": expression, "labels": {"of": f"{dashboard}: {panel}"}}
            for number, (dashboard, panel, expression) in enumerate(expressions())]
    return json.dumps({"groups": [{"name": "panels", "rules": made}]}, indent=1) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Makes Grafana's dashboards of spec.py.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="only say whether the files are as they should be")
    choice.add_argument("--rules", action="store_true", help="print the expressions as recording rules")
    arguments = parser.parse_args()
    if arguments.rules:
        sys.stdout.write(rules())
        return 0
    wanted = {HERE / "dashboards" / f"{dashboard.uid}.json": dashboard_json(dashboard)
              for dashboard in DASHBOARDS}
    there = set((HERE / "dashboards").glob("*.json"))
    if arguments.check:
        stale = sorted(path.name for path in there | set(wanted)
                       if path not in wanted or path not in there or path.read_text() != wanted[path])
        for name in stale:
            print(f"{name} is not what spec.py says; run deploy/grafana/generate.py", file=sys.stderr)
        return 1 if stale else 0
    for path in there - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
