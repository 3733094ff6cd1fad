//! `storebench report`: renders a report again, from a file that `run --save` wrote or from the cluster that measured it.
//! The raw trials are judged anew, so that a report cannot say something that its own data do not.

use std::path::{Path, PathBuf};

use anyhow::bail;
use service_kit::console;
use storebench_core::report::{self, TwoLevels};
use storebench_crds::Verdict;
use storebench_crds::line::one_line;

use super::cluster::{self, Place};
use super::cluster_record::{Judged, fetched, judged, verdict};
use super::suite;
use crate::exit::Exit;
use crate::find::{self, Found, NotAReport, Which};
use crate::output::{Output, Printer, colours, render, show_beside, width};

/// Below the help: what to type, where it was written, and what comes next.
pub(crate) const AFTER_HELP: &str = "\
Examples:
  storebench report runs/first/latest          # the newest run `first` in runs/
  storebench report runs -o markdown           # the newest of each run there
  storebench report git:main:runs -o junit     # the same on a branch
  storebench report benchmarkrun/first -n benchmarks   # of a cluster

storebench run FILE --save DIRECTORY wrote DIRECTORY/RUN/TIME-VERDICT/, with report.html,
report.md, report.json and run.yaml; DIRECTORY/RUN/latest leads to the newest.
report prints, and writes no file. Next:
  storebench compare runs/first/OLD runs/first/latest
  storebench history runs";

pub(crate) fn report(sources: &[PathBuf], place: &Place, output: Output) -> anyhow::Result<Exit> {
    match sources {
        [first, second] => of_two_levels([first, second], output),
        [source] => of_one(source, place, output),
        _ => bail!("give one report, or two"),
    }
}

fn of_one(source: &Path, place: &Place, output: Output) -> anyhow::Result<Exit> {
    let text = source.to_str().filter(|_| !source.exists());
    if let Some(name) = text.and_then(cluster::run_name) {
        return of_cluster(name, place, output);
    }
    if let Some(name) = text.and_then(cluster::suite_name) {
        return suite::of_cluster(name, place, output);
    }
    if place.namespace.is_some() {
        let source = source.display();
        bail!("{source}: a file has no namespace: leave out --namespace, or write benchmarkrun/NAME");
    }
    of_file(source, output).map_err(find::or_of_a_cluster)
}

/// How much of a difference between stores reaches who uses Kubernetes on them. The exit code is that of the graver verdict.
fn of_two_levels(sources: [&PathBuf; 2], output: Output) -> anyhow::Result<Exit> {
    for source in sources {
        let name = source.to_str().and_then(cluster::run_name).filter(|_| !source.exists());
        if let Some(name) = name {
            bail!(
                "benchmarkrun/{name}: two levels take files: storebench report benchmarkrun/{name} -o json > {name}.json"
            );
        }
    }
    let (first, second) = (find::one_report(sources[0])?, find::one_report(sources[1])?);
    let levels = TwoLevels::of(&first, &second)?;
    let text = match output {
        Output::Text => report::levels_text(&levels, width(), colours()),
        Output::Markdown => report::levels_markdown(&levels),
        Output::Html => report::levels_html(&levels),
        Output::Json | Output::Yaml | Output::Junit => {
            bail!("two levels are printed as text, markdown or html: each file has its own JSON")
        }
    };
    console::print(text)?;
    let [store, kubernetes] = levels.verdicts().map(Exit::of);
    Ok(store.max(kubernetes))
}

/// What a source is, judged anew. The exit code is that of the gravest verdict.
fn of_file(source: &Path, output: Output) -> anyhow::Result<Exit> {
    let Found { reports, is_list } = find::reports(source, Which::Newest)?;
    let Some(worst) = reports.iter().map(|report| Exit::of(report.judgement.verdict)).max() else {
        bail!(NotAReport(format!("{}: the list of reports is empty", source.display())));
    };
    let mut printer = Printer::new(output, is_list);
    reports.into_iter().try_for_each(|report| printer.add(report))?;
    printer.finish(None)?;
    Ok(worst)
}

fn of_cluster(name: &str, place: &Place, output: Output) -> anyhow::Result<Exit> {
    let (object, run, recorded) = fetched(name, place, output)?;
    if !cluster::is_complete(&run) {
        let state = one_line(&cluster::state(&run));
        console::tell(format_args!(
            "storebench: benchmarkrun/{name} is not complete ({state}): this is what there is so far"
        ));
    }
    let Some(recorded) = recorded else {
        console::print(serde_yaml::to_string(&object)?)?;
        return Ok(Exit::of(verdict(&run).unwrap_or(Verdict::Invalid)));
    };
    let Judged { held, pair, .. } = judged(&run, recorded);
    let exit = Exit::of(held.judgement.verdict);
    console::print(render(&held, output)?)?;
    if let Some(pair) = pair {
        show_beside(report::two_runs(&[pair]), output)?;
    }
    Ok(exit)
}
