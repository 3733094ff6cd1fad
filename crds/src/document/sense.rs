//! What makes no sense in a run although it fits the schema, said of the very field, with its value and what would be right.
//!
//! Looks at the value as it was written, so that what is wrong elsewhere in the object hides nothing here; whatever has not the type that
//! the schema asks for is passed over. Some of this an API server refuses, too, in the words of a rule about the whole run.

use serde_json::Value;

use super::Problem;
use super::structure::nearest;
use super::text::shorten;
use crate::benchmark_run::{BenchmarkRunSpec, Trials};
use crate::gate_value::GateValue;
use crate::ratio::{self, RatioText, percent};
use crate::{Metric, line};

/// Bounds of a ratio below this are met by whatever runs, or missed; most likely somebody wrote percent. Basis points: 2 %.
const RATIO_MIN: u32 = 200;
/// The same of those above this: fifty times the baseline.
const RATIO_MAX: u32 = 500_000;
/// Without a `%`, a number of this size is most likely meant as one.
const FACTOR_MAX: u32 = 200_000;

/// Something that makes no sense.
pub(super) struct Remark {
    pub problem: Problem,
    /// It says of the value itself, in better words, what the schema says of it, too; and not how it stands to other fields.
    pub is_of_value: bool,
}

/// What makes no sense in a run, as field and text.
pub fn of_run(spec: &BenchmarkRunSpec) -> Vec<(String, String)> {
    let written = serde_json::to_value(spec).unwrap_or_default();
    check("spec", &written).into_iter().map(|Remark { problem, .. }| (problem.field, problem.text)).collect()
}

/// What makes no sense in the spec of a run that stands at this path.
pub(super) fn check(path: &str, spec: &Value) -> Vec<Remark> {
    let run = Run::read(spec);
    let mut found = Vec::new();
    for list in ["arms", "workloads", "workloadRefs"] {
        found.extend(given_twice(path, list, &spec[list]));
    }
    if let [first, others @ ..] = run.baselines.as_slice() {
        found.extend(others.iter().map(|(index, _)| Problem {
            field: format!("{path}.arms[{index}].baseline"),
            text: format!(
                "is true, and that of arms[{}] is, too: at most one arm may have baseline: true, so keep one",
                first.0
            ),
        }));
    }
    found.extend(trials(path, &spec["trials"]));
    let mut found: Vec<_> = found.into_iter().map(|problem| Remark { problem, is_of_value: true }).collect();
    for (index, gate) in items(&spec["gates"]).enumerate() {
        let path = format!("{path}.gates[{index}]");
        let mut remark = |(field, text): Senseless, is_of_value: bool| {
            found.push(Remark { problem: Problem { field: format!("{path}.{field}"), text }, is_of_value });
        };
        if let Some(senseless) = run.names_nothing(gate) {
            remark(senseless, true);
            continue;
        }
        let wrong_way = run.looks_the_wrong_way(gate);
        // What is the wrong bound is not wrong by how much it is, too.
        let implausible = implausible(gate).filter(|_| wrong_way.is_none());
        let of_others = [run.compares_nothing(gate), wrong_way];
        of_others.into_iter().flatten().for_each(|senseless| remark(senseless, false));
        let of_values = [implausible, no_metric(gate), in_other_unit(gate)];
        of_values.into_iter().flatten().for_each(|senseless| remark(senseless, true));
    }
    found
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The fields that hold a bound, and whether it is of a ratio, and whether it is the least allowed.
const BOUNDS: [(&str, bool, bool); 6] = [
    ("atLeast", false, true),
    ("atMost", false, false),
    ("ratioAtLeast", true, true),
    ("ratioAtMost", true, false),
    ("ratioAtLeastBasisPoints", true, true),
    ("ratioAtMostBasisPoints", true, false),
];

/// The bound that a gate has.
fn bound(gate: &Value) -> Option<(&'static str, bool, bool)> {
    BOUNDS.into_iter().find(|(field, ..)| !gate[field].is_null())
}

/// Items that have the name of an earlier one.
fn given_twice(path: &str, list: &str, all: &Value) -> Vec<Problem> {
    let names: Vec<Option<&str>> = items(all).map(|item| item["name"].as_str()).collect();
    let twice = names.iter().enumerate().filter_map(|(index, name)| {
        let first = names[..index].iter().position(|earlier| name.is_some() && earlier == name)?;
        let text = format!(
            "`{}` is the name of {list}[{first}], too: {list} must have distinct names",
            shorten(name.unwrap_or_default())
        );
        Some(Problem { field: format!("{path}.{list}[{index}].name"), text })
    });
    twice.collect()
}

/// What gates refer to.
struct Run<'a> {
    arms: Vec<&'a str>,
    workloads: Vec<&'a str>,
    /// The arms that are to be the baseline: index and name.
    baselines: Vec<(usize, &'a str)>,
    gates: &'a Value,
}

/// The field of a gate that makes no sense, and why.
type Senseless = (&'static str, String);

impl<'a> Run<'a> {
    fn read(spec: &'a Value) -> Self {
        let names = |list: &'a Value| items(list).filter_map(|item| item["name"].as_str()).collect::<Vec<_>>();
        let baselines = items(&spec["arms"]).enumerate().filter(|(_, arm)| arm["baseline"] == Value::Bool(true));
        Self {
            arms: names(&spec["arms"]),
            workloads: [names(&spec["workloads"]), names(&spec["workloadRefs"])].concat(),
            baselines: baselines.map(|(index, arm)| (index, arm["name"].as_str().unwrap_or_default())).collect(),
            gates: &spec["gates"],
        }
    }

    /// An arm or workload that there is not.
    fn names_nothing(&self, gate: &Value) -> Option<Senseless> {
        [("arm", &self.arms), ("workload", &self.workloads)].into_iter().find_map(|(kind, known)| {
            let name = gate[kind].as_str().filter(|name| !name.is_empty() && !known.contains(name))?;
            if known.is_empty() {
                return None;
            }
            let meant = nearest(name, known.iter().copied());
            let meant = meant.map_or_else(String::new, |meant| format!("did you mean {}? ", shorten(meant)));
            let mut distinct: Vec<&str> = Vec::new();
            known.iter().filter(|name| !name.is_empty()).for_each(|name| {
                if !distinct.contains(name) {
                    distinct.push(name);
                }
            });
            let known = line::short_line(&distinct.join(", "), 150);
            Some((kind, format!("`{}` is no {kind} of this run: {meant}there are {known}", shorten(name))))
        })
    }

    /// A ratio to nothing, or to itself.
    fn compares_nothing(&self, gate: &Value) -> Option<Senseless> {
        let Some((field, true, _)) = bound(gate) else { return None };
        let arm = gate["arm"].as_str().unwrap_or_default();
        if self.baselines.is_empty() {
            let text = "compares with a baseline, and no arm has baseline: true; mark one, or give atLeast or atMost";
            return Some((field, text.into()));
        }
        if self.baselines.iter().any(|(_, baseline)| *baseline != arm) {
            return None;
        }
        let others: Vec<&str> = self.arms.iter().copied().filter(|other| *other != arm).collect();
        let instead = match others.is_empty() {
            true => String::new(),
            false => format!("name another arm ({}), ", line::short_line(&others.join(", "), 150)),
        };
        let text =
            format!("`{arm}` is the baseline, the ratio of which to itself is 1: {instead}or give atLeast or atMost");
        Some(("arm", text))
    }

    /// A bound that the better arm misses, unless another gate makes a range of it.
    fn looks_the_wrong_way(&self, gate: &Value) -> Option<Senseless> {
        let (field, is_ratio, is_least) = bound(gate)?;
        let metric = gate["metric"].as_str().and_then(Metric::named)?;
        if metric.direction.more_is_better() == is_least {
            return None;
        }
        let same = |other: &&Value| ["arm", "workload", "metric"].iter().all(|field| other[field] == gate[field]);
        let mut others = items(self.gates).filter(same).filter_map(bound);
        let is_range = others.any(|(_, is_ratio_too, other)| is_ratio_too == is_ratio && other != is_least);
        if is_range {
            return None;
        }
        let (better, instead) = match (is_least, is_ratio) {
            (false, false) => ("higher", "atLeast"),
            (false, true) => ("higher", "ratioAtLeast"),
            (true, false) => ("lower", "atMost"),
            (true, true) => ("lower", "ratioAtMost"),
        };
        let effect = match is_least && in_unit_of(metric, &gate[field]) == Some(0) {
            true => "is 0, which no arm could miss, and",
            false => "fails an arm for being too good, since",
        };
        let text = format!("{effect} {metric:?} is better when {better}: give {instead}, or both for a range");
        Some((field, text))
    }
}

/// A bound of a ratio that no run could miss, or none meet.
fn implausible(gate: &Value) -> Option<Senseless> {
    let Some((field, true, is_least)) = bound(gate) else { return None };
    let text = gate[field].as_str().and_then(|text| RatioText::new(text).ok());
    // Elsewhere a number is refused as such.
    let number = gate[field].as_u64().filter(|_| field.ends_with("BasisPoints"));
    let number = number.and_then(|number| u32::try_from(number).ok());
    let ratio = text.as_ref().map(RatioText::basis_points).or(number)?;
    let is_factor = text.as_ref().is_some_and(|text| !text.as_str().ends_with('%'));
    let shown = percent(ratio.into());
    if is_factor && ratio >= FACTOR_MAX {
        let written = text.as_ref().map_or("", RatioText::as_str);
        return Some((field, format!("`{written}` is {written} times the baseline: for percent write {written}%")));
    }
    let effect =
        if is_least == (ratio < RATIO_MIN) { "hardly a run could miss it" } else { "hardly a run could meet it" };
    let remedy = match ratio {
        0 => "write a ratio such as 95%".into(),
        // Percent where basis points are asked for.
        ratio if ratio < RATIO_MIN && text.is_none() => {
            format!("if percent were meant, write {} (basis points)", ratio * 100)
        }
        ratio if ratio < RATIO_MIN => format!("write it like {}", ratio::EXAMPLE),
        ratio if ratio > RATIO_MAX => "10000 basis points, or 100%, are equal".into(),
        _ => return None,
    };
    Some((field, format!("is {shown} of the baseline, so that {effect}: {remedy}")))
}

/// A name that is no metric's, where it can be told which was meant.
fn no_metric(gate: &Value) -> Option<Senseless> {
    let written = gate["metric"].as_str().filter(|name| Metric::named(name).is_none())?;
    let meant = Metric::meant(written)?;
    let all = "`storebench explain benchmarkrun.spec.gates.metric` lists all";
    Some(("metric", format!("`{}` is no metric: did you mean {meant:?}? {all}", shorten(written))))
}

/// A text that is no bound of this metric.
fn in_other_unit(gate: &Value) -> Option<Senseless> {
    let Some((field, false, _)) = bound(gate) else { return None };
    let text = gate[field].as_str()?;
    if text.parse::<u64>().is_ok() {
        return Some((field, format!("must be a number, not the text `{}`: remove the quotes", shorten(text))));
    }
    let metric = gate["metric"].as_str().and_then(Metric::named)?;
    let duration = GateValue::new(text).ok()?;
    match metric.unit.of_time() {
        None => {
            let text = format!("is the duration `{text}`, and {metric:?} is no time: write a whole number in its unit");
            Some((field, text))
        }
        Some((_, unit)) if metric.unit.whole(&duration).is_none() => {
            let text = format!("`{text}` is finer than {metric:?}, which is in {unit}: write a whole number of them");
            Some((field, text))
        }
        Some(_) => None,
    }
}

/// The number of a metric's unit that stands there, as it is or as a duration.
fn in_unit_of(metric: Metric, bound: &Value) -> Option<u64> {
    let bound: GateValue = serde_json::from_value(bound.clone()).ok()?;
    metric.unit.whole(&bound)
}

/// Fewer trials at most than at least, where one of both is the default.
fn trials(path: &str, trials: &Value) -> Option<Problem> {
    let default = Trials::default();
    let number = |field: &str, default: u32| match &trials[field] {
        Value::Null => Some((u64::from(default), " (where it is not given)")),
        given => Some((given.as_u64().filter(|number| (1..=30).contains(number))?, "")),
    };
    let ((min, min_is), (max, max_is)) = (number("min", default.min)?, number("max", default.max)?);
    (min > max).then(|| Problem {
        field: format!("{path}.trials.min"),
        text: format!(
            "is {min}{min_is}, but trials.max is {max}{max_is}: trials.min must not exceed trials.max, so give both"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(gates: Value) -> Vec<String> {
        let spec = json!({
            "arms": [{ "name": "etcd", "baseline": true }, { "name": "again" }],
            "workloads": [{ "name": "put" }],
            "gates": gates,
        });
        check("spec", &spec)
            .into_iter()
            .map(|Remark { problem, .. }| format!("{}: {}", problem.field, problem.text))
            .collect()
    }

    fn one(gate: Value) -> String {
        let mut gate = gate;
        for (field, value) in [("arm", "again"), ("metric", "ThroughputPerSecond")] {
            if gate[field].is_null() {
                gate[field] = value.into();
            }
        }
        said(json!([gate])).join("; ")
    }

    #[test]
    fn what_a_gate_refers_to_is_named_with_what_there_is() {
        let unknown = one(json!({ "arm": "agian", "ratioAtLeast": "95%" }));
        assert_eq!(
            unknown,
            "spec.gates[0].arm: `agian` is no arm of this run: did you mean again? there are etcd, again"
        );
        assert!(
            one(json!({ "workload": "get", "atLeast": 5 })).contains("`get` is no workload of this run: there are put")
        );
        assert!(one(json!({ "arm": "etcd", "ratioAtLeast": "95%" })).contains("name another arm (again)"));
        assert_eq!(one(json!({ "arm": "etcd", "atLeast": 5 })), "");
    }

    #[test]
    fn arms_of_one_name_are_listed_once() {
        let spec = json!({
            "arms": [{ "name": "redis", "baseline": true }, { "name": "redis" }],
            "workloads": [{ "name": "set" }],
            "gates": [{ "arm": "valkey", "metric": "ThroughputPerSecond", "atLeast": 5 }],
        });
        let said: Vec<String> = check("spec", &spec).into_iter().map(|said| said.problem.text).collect();
        assert!(said.iter().any(|text| text.ends_with("there are redis")), "{said:?}");
    }

    #[test]
    fn a_number_where_a_ratio_belongs_has_one_remedy_and_it_is_not_that_of_basis_points() {
        assert_eq!(one(json!({ "ratioAtLeast": 95 })), "", "the schema refuses it");
    }

    #[test]
    fn a_duration_bounds_what_is_a_time_and_nothing_else() {
        for bound in ["5ms", "1.5s", "500us"] {
            assert_eq!(one(json!({ "metric": "LatencyP99Micros", "atMost": bound })), "");
        }
        let said = one(json!({ "metric": "LatencyP99Micros", "atMost": "0.5us" }));
        assert!(said.contains("`0.5us` is finer than LatencyP99Micros, which is in microseconds"), "{said}");
        let said = one(json!({ "atLeast": "5ms" }));
        assert!(said.contains("is the duration `5ms`, and ThroughputPerSecond is no time"), "{said}");
        assert!(one(json!({ "atLeast": "5000" })).ends_with("remove the quotes"));
        assert_eq!(one(json!({ "atLeast": "5 apples" })), "", "the schema refuses it");
    }

    /// It failed an arm for being too good, and no run could miss it.
    #[test]
    fn a_bound_that_looks_the_wrong_way_has_one_remark_whatever_it_is() {
        let latency = |bound: Value| {
            let mut gate = bound;
            gate["metric"] = "LatencyP99Micros".into();
            one(gate)
        };
        for bound in [json!({ "atLeast": 0 }), json!({ "atLeast": "0ms" })] {
            assert_eq!(
                latency(bound),
                "spec.gates[0].atLeast: is 0, which no arm could miss, and LatencyP99Micros is better when lower: give atMost, or both \
                 for a range"
            );
        }
        let said = latency(json!({ "ratioAtLeast": "1%" }));
        assert!(said.contains("give ratioAtMost") && !said.contains("; "), "{said}");
    }

    /// An earlier storebench took it: whoever shows what runs are worth says so, and no run that has begun is refused.
    #[test]
    fn a_value_that_nothing_could_miss_or_meet_is_no_mistake() {
        assert_eq!(one(json!({ "atLeast": 0 })), "");
        for bound in [json!(0), json!("0ms"), json!(3_600_000_000_u64), json!("60m")] {
            assert_eq!(one(json!({ "metric": "LatencyP99Micros", "atMost": bound })), "");
        }
    }

    #[test]
    fn a_metric_by_the_name_that_reports_give_it_is_told_by_its_own() {
        let said = one(json!({ "metric": "p99", "atMost": 5000 }));
        assert!(said.starts_with("spec.gates[0].metric: `p99` is no metric: did you mean LatencyP99Micros?"), "{said}");
        assert_eq!(one(json!({ "metric": "Beauty", "atMost": 5000 })), "", "the schema refuses it");
    }

    #[test]
    fn a_bound_that_nothing_could_miss_is_pointed_out() {
        assert!(one(json!({ "ratioAtLeastBasisPoints": 95 })).ends_with(
            "is 0.95 % of the baseline, so that hardly a run could miss it: if percent were meant, write 9500 (basis points)"
        ));
        let latency = |bound: Value| {
            let mut gate = bound;
            gate["metric"] = "LatencyP99Micros".into();
            one(gate)
        };
        assert!(
            latency(json!({ "ratioAtMostBasisPoints": 105 }))
                .contains("could meet it: if percent were meant, write 10500")
        );
        assert!(
            latency(json!({ "ratioAtMost": "600" }))
                .contains("`600` is 600 times the baseline: for percent write 600%")
        );
        assert!(latency(json!({ "ratioAtMost": "6000%" })).contains("could miss it"));
        for bound in
            [json!({ "ratioAtLeast": "95%" }), json!({ "ratioAtLeast": "0.95" }), json!({ "ratioAtLeast": "1.5" })]
        {
            assert_eq!(one(bound), "");
        }
    }

    #[test]
    fn who_is_better_does_not_fail() {
        assert!(one(json!({ "atMost": 5 })).contains("better when higher: give atLeast, or both for a range"));
        let gates = json!([
            { "arm": "again", "metric": "ThroughputPerSecond", "ratioAtMost": "105%" },
            { "arm": "again", "metric": "ThroughputPerSecond", "ratioAtLeast": "95%" },
        ]);
        assert_eq!(said(gates), [""; 0], "a range");
        let gates = json!([
            { "arm": "again", "metric": "ThroughputPerSecond", "atMost": 5 },
            { "arm": "again", "metric": "ThroughputPerSecond", "ratioAtLeast": "95%" },
        ]);
        assert_eq!(said(gates).len(), 1, "a value and a ratio are no range");
        assert!(one(json!({ "metric": "LatencyP99Micros", "ratioAtLeast": "90%" })).contains("better when lower"));
    }

    #[test]
    fn trials_are_held_against_the_defaults_too() {
        let said = |trials: Value| self::trials("spec", &trials).map(|problem| problem.text).unwrap_or_default();
        assert!(said(json!({ "min": 12 })).starts_with("is 12, but trials.max is 10 (where it is not given)"));
        assert!(said(json!({ "max": 4 })).starts_with("is 6 (where it is not given), but trials.max is 4:"));
        assert_eq!(said(json!({ "min": 12, "max": 12 })) + &said(Value::Null) + &said(json!({ "min": "x" })), "");
    }

    #[test]
    fn what_is_no_run_at_all_says_nothing() {
        for spec in [Value::Null, json!([]), json!({ "gates": 5, "arms": "x" }), json!({ "gates": [5, null] })] {
            assert!(check("spec", &spec).is_empty());
        }
    }
}
