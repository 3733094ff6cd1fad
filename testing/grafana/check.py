#!/usr/bin/env python3
"""What testing/grafana/test asks of the dashboards.

check.py files                      their structure, and that every metric in the operator's source is used
check.py live PROMETHEUS METRICS    every query of every dashboard and rule, through Prometheus at this URL, which scrapes
                                    what the file METRICS was saved from
check.py load PROMETHEUS            every query of the dashboard of loads that go on, through a Prometheus that scrapes one

Nothing but Python's own library. Prints one line for each failure."""
import json
import math
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
DASHBOARDS = sorted((ROOT / "grafana/dashboards").glob("*.json"))
# Of servers. Whether their metrics are there, tests of the servers themselves ask.
SERVICES = sorted((ROOT / "grafana/services").glob("*.json"))
# Of loads that go on. That it asks for what they say, and for all of it, bench-jobs/tests/live.rs asks.
OF_LOADS = "live.json"
RULES = (ROOT / "grafana/rules/storebench.yaml").read_text()
TELEMETRY = ROOT / "operator/controller/src/telemetry"
METRICS = ROOT / "crds/src"
GAUGES = ROOT / "operator/core/src/gauges.rs"
PANELS = {"barchart", "stat", "table", "text", "timeseries", "trend"}
UNITS = {"bytes", "none", "ops", "reqps", "s", "short"}
# What only a run on Kubernetes has: where the operator has seen none, this dashboard cannot show anything.
OF_KUBERNETES = ("kubernetes.json", "storebench_result_request_seconds")
# What only some runs have: panels of it are empty where there is nothing to say.
MAY_BE_ABSENT = {"storebench_comparison_not_ranked", "storebench_result_measure", "storebench_baseline_verdict",
                 "storebench_baseline_ratio", "storebench_baseline_ratio_low", "storebench_baseline_ratio_high"}
METRIC = re.compile(r"(?<![:\w])storebench_\w+(?!\w*:)")
failures = []


def fail(*words):
    failures.append(" ".join(map(str, words)))


def load():
    """Dashboards of what the operator says."""
    return [(path.name, json.loads(path.read_text())) for path in DASHBOARDS if path.name != OF_LOADS]


def targets(dashboard):
    return [(panel, target) for panel in dashboard["panels"] for target in panel.get("targets", [])]


def variables(dashboard):
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def expressions():
    """Everything that names metrics: panels, variables, rules."""
    for _, dashboard in load():
        yield from (target["expr"] for _, target in targets(dashboard))
        yield from (variable["definition"] for variable in variables(dashboard).values() if "definition" in variable)
    yield from (line for line in RULES.splitlines() if not line.lstrip().startswith("#"))


def used():
    # What is matched in label values or texts would be storebench-something, with a hyphen.
    return {name for expression in expressions() for name in METRIC.findall(expression)}


def family(name):
    return re.sub(r"_(bucket|sum|count|total|info)$", "", name)


def unused_allowed():
    lines = [line.split(None, 1) for line in (ROOT / "testing/grafana/unused").read_text().splitlines()
             if line and not line.startswith("#")]
    for line in lines:
        if len(line) < 2:
            fail("testing/grafana/unused:", line[0], "has no reason")
    return {line[0] for line in lines}


def all_used(families, where):
    names, allowed = {family(name) for name in used()}, unused_allowed()
    for name in sorted(families - names - allowed):
        fail(f"{name} of {where} is used by no dashboard and no rule: use it, or say why not in testing/grafana/unused")
    for name in sorted(allowed - families | allowed & names):
        fail(f"testing/grafana/unused: {name} is used, or is not in {where}: remove it")


def files():
    sources = "".join(path.read_text() for path in TELEMETRY.glob("*.rs"))
    plain = re.findall(r'\.register\(\s*"(\w+)"', sources)
    seconds = re.findall(r'\.register_with_unit\(\s*"(\w+)",[^;]*?Unit::Seconds', sources)
    # Results are registered in a loop, over a table of core's and over the metrics that have a gauge.
    table = re.search(r"const SHOWN[^=]*= \[(.*?)\n\];", GAUGES.read_text(), re.S)
    shown = re.findall(r'\(\s*"(\w+)",', table[1]) if table else []
    of_metrics = re.findall(r'gauge\("(\w+)"', "".join(path.read_text() for path in METRICS.rglob("*.rs")))
    loops = len(re.findall(r"\.register\(name, help,", sources))
    if not shown or not of_metrics or loops != 1 \
            or len(plain) + len(seconds) + loops != len(re.findall(r"\.register(?:_with_unit)?\(", sources)):
        fail("a metric is registered in operator/controller/src/telemetry in a way that this check does not know")
    plain += shown + of_metrics
    all_used({f"storebench_{name}" for name in plain} | {f"storebench_{name}_seconds" for name in seconds},
             "operator/controller/src/telemetry")
    uids = set()
    if len(DASHBOARDS) != 5:
        fail("wanted 5 dashboards, found", [path.name for path in DASHBOARDS])
    for path in [*DASHBOARDS, *SERVICES]:
        made = json.loads(path.read_text())
        structure(path.name, made)
        if made["uid"] in uids:
            fail(path.name, "has the uid of another dashboard:", made["uid"])
        uids.add(made["uid"])


def structure(name, dashboard):
    known = variables(dashboard)
    for key, kind in {"uid": str, "title": str, "schemaVersion": int, "panels": list, "time": dict, "tags": list}.items():
        if not isinstance(dashboard.get(key), kind):
            fail(name, key, "is missing or no", kind.__name__)
    for key in ("id", "version", "iteration", "__inputs"):
        if key in dashboard:
            fail(name, "has the field", key, "which changes with every export")
    if known.get("datasource", {}).get("type") != "datasource":
        fail(name, "has no variable `datasource` to choose a data source by")
    asked = "".join(target["expr"] for _, target in targets(dashboard)) + "".join(
        variable.get("definition", "") for variable in known.values())
    for variable in known.keys() - {"datasource"}:
        if not re.search(rf"\${variable}\b", asked):
            fail(name, "no query uses the variable", variable)
    numbers, taken = set(), set()
    for panel in dashboard["panels"]:
        where = f"{name} `{panel['title'] or panel['type']}`:"
        numbers.add(panel["id"])
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        if cells & taken or place["x"] + place["w"] > 24:
            fail(where, "overlaps another panel, or the edge")
        taken |= cells
        if panel["type"] not in PANELS:
            fail(where, "unknown type", panel["type"])
        if panel["type"] == "text":
            continue
        if not panel["title"] or not panel["description"]:
            fail(where, "a title and a description are missing")
        if panel["fieldConfig"]["defaults"].get("unit") not in UNITS and panel["options"].get("textMode") != "name":
            fail(where, "has no unit that this check knows:", panel["fieldConfig"]["defaults"].get("unit"))
        if not panel["targets"]:
            fail(where, "has no query")
        if len({target["refId"] for target in panel["targets"]}) != len(panel["targets"]):
            fail(where, "refIds are not unique")
        if "repeat" in panel and panel["repeat"] not in known:
            fail(where, "repeats by an unknown variable", panel["repeat"])
        for target in panel["targets"]:
            if target["datasource"]["uid"] != "${datasource}":
                fail(where, "does not use the chosen data source")
            for variable in re.findall(r"\$\{?(\w+)", target["expr"]):
                if variable not in known and variable not in ("__rate_interval", "__range"):
                    fail(where, "unknown variable", variable)
    if len(numbers) != len(dashboard["panels"]):
        fail(name, "panels share an id")
    if name != "operator.json" and not any(panel["type"] == "text" for panel in dashboard["panels"]):
        fail(name, "does not say what must not be compared")


def ask(url, path, **parameters):
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=20) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        return fail(path, parameters, error.read().decode())


def numbers_of(result):
    values = [value for series in result for value in series.get("values", [series.get("value")])]
    return [float(value[1]) for value in values if not math.isnan(float(value[1]))]


def evaluate(url, target, expression):
    now = time.time()
    if target.get("instant"):
        data = ask(url, "query", query=expression, time=now)
    else:
        data = ask(url, "query_range", query=expression, start=now - 60, end=now, step=5)
    return data["result"] if data else []


def since_start(expression):
    """Rates in which nothing happened while Prometheus looked are NaN: the same with everything since the operator's start."""
    return re.sub(r"(?:rate|increase)\(([^()\[\]]+)\[[^\]]+\]\)", r"(\1)", expression)


def in_scrape(name, chosen, text):
    """Whether the operator says this metric of what is chosen."""
    wanted = [f'{label}="{chosen[label]}"' for label in ("namespace", "run", "workload") if chosen[label] != ".*"]
    return any(all(label in line for label in wanted) for line in text.splitlines() if line.startswith(name + "{"))


def panel_has_data(url, where, target, chosen, text):
    expression = target["expr"].replace("$__rate_interval", "1m").replace("$__range", "1h")
    for name, value in chosen.items():
        expression = re.sub(rf"\$\{{?{name}\b\}}?", lambda _, value=value: value, expression)
    if "$" in expression:
        return fail(where, "a variable has no value in", expression)
    result = evaluate(url, target, expression)
    names = set(METRIC.findall(expression))
    if not result and names <= MAY_BE_ABSENT and not any(in_scrape(name, chosen, text) for name in names):
        return None
    if not result:
        return fail(where, "no data for", expression)
    if not numbers_of(result) and not numbers_of(evaluate(url, target, since_start(expression))):
        return fail(where, "no number, even since the operator's start, for", expression)
    return result


def fields_exist(where, panel, result):
    """Names of fields in a panel's transformations are labels of its query."""
    labels = {label for series in result for label in series["metric"]} | {"Time", "Value"}
    columns = set()
    for step in panel["transformations"]:
        if step["id"] == "groupingToMatrix":
            wanted = {step["options"]["rowField"], step["options"]["columnField"]}
            if wanted - labels:
                fail(where, "its query has no label", wanted - labels)
            columns = {series["metric"].get(step["options"]["columnField"]) for series in result}
            labels = columns | {f"{step['options']['rowField']}\\{step['options']['columnField']}"}
        if step["id"] == "sortBy" and step["options"]["sort"][0]["field"] not in labels:
            fail(where, "sorts by what is not there:", step["options"]["sort"][0]["field"])
    if "xField" in panel["options"] and panel["options"]["xField"] not in labels:
        fail(where, "has no field", panel["options"]["xField"], "for its x axis, only", sorted(map(str, labels)))


def choices(url, text):
    """Each run with comparisons, as one would choose it, with one workload and with all; and everything."""
    result = (ask(url, "query", query="storebench_comparison_ratio") or {"result": []})["result"]
    if not result:
        fail("no finished run compares two arms: kubectl apply -f testing/cluster/short-run.yaml, and wait until it is Complete")
        return []
    labels = result[0]["metric"]
    if f'namespace="{labels["namespace"]}"' not in text:
        fail("the label `namespace` is", labels["namespace"], "in Prometheus, and not so in the scrape: honor_labels is lost")
    runs = {(series["metric"]["namespace"], series["metric"]["run"]): series["metric"] for series in result}
    chosen = [{name: run[name] for name in ("namespace", "run", "workload", "metric")} for run in runs.values()]
    everything = {name: ".*" for name in chosen[0]}
    return [*chosen, *({**one, "workload": ".*", "metric": ".*"} for one in chosen), everything]


def metrics_of(wanted):
    return {family(metric) for name, dashboard in load() if name == wanted for _, target in targets(dashboard)
            for metric in METRIC.findall(target["expr"])}


def of_kubernetes(url):
    """A run on Kubernetes, with one workload and with all."""
    result = ask(url, "query", query=OF_KUBERNETES[1])["result"]
    one = {name: result[0]["metric"][name] for name in ("namespace", "run", "workload")}
    return [one, {**one, "workload": ".*"}]


def variables_have_values(url, name, known, chosen):
    for variable in known.values():
        if variable["type"] != "query":
            continue
        asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
        selector = re.sub(r"\$(\w+)", lambda found: chosen[found[1]], asked[1])
        if not any(asked[2] in series for series in ask(url, "series", **{"match[]": selector}) or []):
            fail(name, "the variable", variable["name"], "has no values:", variable["definition"])


def of_loads(url):
    """The load that goes on, with one arm and workload and with all."""
    dashboard = json.loads((ROOT / "grafana/dashboards" / OF_LOADS).read_text())
    found = ask(url, "query", query='storebench_job_phase{phase="measure"} == 1')["result"]
    if not found:
        return fail("no load goes on")
    one = {name: found[0]["metric"].get(name, f"<no label {name}>") for name in ("namespace", "run", "arm", "workload")}
    for chosen in one, {**one, "arm": ".*", "workload": ".*"}:
        for panel, target in targets(dashboard):
            where = f"{OF_LOADS} `{panel['title']}` {target['refId']}:"
            result = panel_has_data(url, where, target, chosen, "")
            labels = set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
            if result and labels - set(result[0]["metric"]):
                fail(where, "its legend wants", labels, "and there is", result[0]["metric"])
        variables_have_values(url, OF_LOADS, variables(dashboard), chosen)
    print(f"{2 * len(targets(dashboard))} queries were asked")


def live(url, metrics):
    text = pathlib.Path(metrics).read_text()
    exported = set(re.findall(r"^(storebench_\w+)", text, re.M))
    absent = set()
    if OF_KUBERNETES[1] not in exported:
        absent = {family(name) for name in used()} - {family(name) for name in exported}
        absent &= metrics_of(OF_KUBERNETES[0])
        print(f"not asked: {OF_KUBERNETES[0]}, since no run on Kubernetes has finished")
    for name in sorted(name for name in used() - exported if family(name) not in absent | MAY_BE_ABSENT):
        fail(f"{name} is in a dashboard or a rule and not in the scrape")
    all_used({family(name) for name in exported}, "the scrape")
    one_everything_all = choices(url, text)
    count = 0
    for name, dashboard in load():
        if absent and name == OF_KUBERNETES[0]:
            continue
        known = variables(dashboard)
        for chosen in one_everything_all if name != OF_KUBERNETES[0] else of_kubernetes(url):
            if any(value == ".*" and not known.get(variable, {"multi": True})["multi"] for variable, value in chosen.items()):
                continue
            for panel, target in targets(dashboard):
                where = f"{name} `{panel['title']}` {target['refId']}:"
                count += 1
                result = panel_has_data(url, where, target, chosen, text)
                if result:
                    fields_exist(where, panel, result)
            variables_have_values(url, name, known, chosen)
    for group in ask(url, "rules")["groups"]:
        for rule in group["rules"]:
            count += 1
            if rule["health"] != "ok":
                fail("rule", rule["name"], rule["health"], rule.get("lastError", ""))
            if rule["type"] == "recording" and not ask(url, "query", query=rule["name"])["result"]:
                fail("rule", rule["name"], "records nothing")
    print(f"{count} queries were asked")


if sys.argv[1:] == ["files"]:
    files()
elif len(sys.argv) == 4 and sys.argv[1] == "live":
    live(sys.argv[2], sys.argv[3])
elif len(sys.argv) == 3 and sys.argv[1] == "load":
    of_loads(sys.argv[2])
else:
    sys.exit(__doc__)
for failure in failures:
    print("FAIL", failure)
sys.exit(1 if failures else 0)
