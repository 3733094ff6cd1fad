//! The report as one HTML file: no script, nothing fetched, light and dark, readable on a phone.
//!
//! A policy in the page's head forbids what the page does not need, so that text that slipped through [`escape`] could
//! still load or run nothing.

mod axes;
mod bars;
mod canvas;
mod curves;
mod escape;
mod forest;
mod load_curve;
mod palette;
mod parts;
mod scale;
mod scatter;

use storebench_crds::Metric;
use storebench_crds::status::Verdict;
use storebench_crds::workload::Workload;

use super::Report;
use super::document::{Document, Section};
use super::levels::TwoLevels;
use super::{describe, ledger, load_curve as curve_of_load, lookup, measures, requests, resources, wording};
pub(super) use escape::escape;
use escape::escape_block;
use parts::{compact_table, details, figure, list, section, table, wrapping_table};

/// Why a report could not be rendered as HTML.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// A chart could not be drawn.
    #[error("the chart `{chart}` could not be drawn: {reason}")]
    Chart {
        /// Its title.
        chart: String,
        /// What plotters said.
        reason: String,
    },
    /// The record holds a histogram that cannot be read.
    #[error(
        "the latency histogram of {arm}, {workload}, trial {trial} cannot be read, so the record is damaged: {reason}"
    )]
    Histogram {
        /// The workload's name.
        workload: String,
        /// The arm's name.
        arm: String,
        /// The trial's number, from 1.
        trial: u32,
        /// What the decoder said.
        reason: String,
    },
    /// The run's spec could not be written as YAML.
    #[error("the run's spec could not be written as YAML: {0}")]
    Spec(String),
}

const STYLE: &str = include_str!("page.css");

/// Renders a report as a single HTML file.
///
/// # Errors
/// [`RenderError::Histogram`] if the record is damaged; the others only if plotters or the YAML writer fails.
pub fn html(report: &Report) -> Result<String, RenderError> {
    Ok(page(&title(report), &head(report), &body(report)?))
}

/// Renders several reports as a single HTML file, one below the other, with a list of them at its top.
///
/// # Errors
/// As [`html`].
pub fn html_of_several(reports: &[Report]) -> Result<String, RenderError> {
    let mut links = String::new();
    let mut articles = String::new();
    for (number, report) in reports.iter().enumerate() {
        links.push_str(&format!("<li><a href=\"#run-{number}\">{}</a></li>", escape(&title(report))));
        let markup = head(report) + &body(report)?;
        articles.push_str(&format!("<article id=\"run-{number}\">\n{}</article>\n", of_run(number, &markup)));
    }
    let head = format!("<nav aria-label=\"Runs\"><ul>{links}</ul></nav>\n");
    Ok(page(&format!("{} runs", reports.len()), &head, &articles))
}

/// Renders a suite as a single HTML file: what all its runs say together, and below it each of them.
///
/// # Errors
/// As [`html`].
pub fn suite_html(document: Document, reports: &[Report]) -> Result<String, RenderError> {
    let title = document.title.clone();
    let (head, mut body) = document_parts(document);
    for (number, report) in reports.iter().enumerate() {
        let markup = self::head(report) + &self::body(report)?;
        body.push_str(&format!("<article id=\"run-{number}\">\n{}</article>\n", of_run(number, &markup)));
    }
    Ok(page(&title, &head, &body))
}

/// The same markup with names of places that no other run on the page has. What stands in quotes after these words was written here:
/// in text from outside quotes are escaped. Marks are the page's.
fn of_run(number: usize, markup: &str) -> String {
    let names = ["id", "aria-labelledby"].iter().fold(markup.to_owned(), |markup, attribute| {
        markup.replace(&format!(" {attribute}=\""), &format!(" {attribute}=\"run-{number}-"))
    });
    let marks = format!("href=\"#run-{number}-mark-");
    names.replace("href=\"#", &format!("href=\"#run-{number}-")).replace(&marks, "href=\"#mark-")
}

fn title(report: &Report) -> String {
    let (_, word, _) = wording::headline(report);
    format!("{}: {word}", report.record.name)
}

fn body(report: &Report) -> Result<String, RenderError> {
    let mut body = summary(report)?;
    body.push_str(&caveats(report));
    for (number, workload) in report.record.spec.workloads.iter().enumerate() {
        body.push_str(&workload_section(report, number, workload)?);
    }
    if let Some(gates) = ledger::gates(report) {
        body.push_str(&section("gates", "Gates", &wrapping_table("Gates", &gates)));
    }
    if let Some(resources) = resources::table(report) {
        body.push_str(&section("resources", "Resources", &compact_table("Resources", &resources)));
    }
    body.push_str(&trials(report));
    body.push_str(&arms(report));
    body.push_str(&fingerprint(report));
    body.push_str(&spec(report)?);
    if report.judgement.results.is_empty() {
        return Ok(body);
    }
    body.push_str(&section("guide", "How to read this", &list("plain", &describe::reading_guide(report))));
    Ok(body)
}

/// Renders what two levels of a comparison say together as a single HTML file.
pub fn levels_html(levels: &TwoLevels<'_>) -> String {
    document_html(levels.document())
}

/// Renders what is not one run's report as a single HTML file.
pub fn document_html(document: Document) -> String {
    let title = document.title.clone();
    let (head, body) = document_parts(document);
    page(&title, &head, &body)
}

/// What stands above and within a page that is not one run's report.
fn document_parts(document: Document) -> (String, String) {
    let Document { title, summary, sections } = document;
    let mut links = String::new();
    let mut body = String::new();
    for (number, Section { title, statements, table, notes }) in sections.into_iter().enumerate() {
        links.push_str(&format!("<li><a href=\"#level-{number}\">{}</a></li>", escape(&title)));
        let mut markup = list("plain", &statements);
        markup.push_str(&table.map_or_else(String::new, |table| parts::table(&title, &table)));
        markup.push_str(&list("plain notes", &notes));
        body.push_str(&section(&format!("level-{number}"), &title, &markup));
    }
    let head = format!(
        "<header>\n<p class=\"brand\">storebench report</p>\n<div class=\"verdict tone-plain\">\n<h1>{}</h1>\n\
         <p class=\"message\">{}</p>\n</div>\n<nav aria-label=\"Sections\"><ul>{links}</ul></nav>\n</header>\n",
        escape(&title),
        escape(&summary)
    );
    (head, body)
}

/// A whole page around what it says.
fn page(title: &str, head_markup: &str, body_markup: &str) -> String {
    let (title, style, marks) = (escape(title), palette::style_rules(), palette::mark_symbols());
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"storebench\">\n\
         <title>{title} · storebench</title>\n<style>\n{STYLE}{style}</style>\n</head>\n\
         <body>\n{marks}\n{head_markup}<p class=\"phone\">Tables scroll sideways where a shadow shows that there is more.</p>\n\
         <main>\n{body_markup}</main>\n</body>\n</html>\n"
    )
}

fn head(report: &Report) -> String {
    let (sign, word, tone) = wording::headline(report);
    let class = parts::tone_class(tone);
    let name = escape(&report.record.name);
    let (message, warning) = describe::message(report);
    let mut message = format!("<p class=\"message\">{}</p>\n", escape(&message));
    if let Some(warning) = warning {
        message.push_str(&format!("<p class=\"meaning\">{warning}</p>\n"));
    }
    let circumstances = parts::list("circumstances", &describe::circumstances(report));
    let mut text = format!(
        "<header>\n<p class=\"brand\">storebench report</p>\n<div class=\"verdict tone-{class}\">\n\
         <p class=\"word\"><span class=\"sign\" aria-hidden=\"true\">{sign}</span>{word}</p>\n<h1>{name}</h1>\n\
         {message}{circumstances}</div>\n"
    );
    if let Some(reason) = &report.record.aborted {
        let reason = escape(reason);
        text.push_str(&parts::callout(&format!("<p>The run ended before its schedule did: {reason}</p>")));
    }
    for warning in describe::warnings(report) {
        text.push_str(&parts::callout(&format!("<p>{}</p>", escape(&warning))));
    }
    for left in &report.record.left_behind {
        let (arm, words, removal) = (escape(&left.arm), escape(&left.in_words()), escape(&left.removal));
        text.push_str(&parts::callout(&format!(
            "<p><strong>{arm}</strong>, {words}. To remove them:</p>\n<pre class=\"command\"><code>{removal}</code></pre>"
        )));
    }
    for arm in &report.record.arms {
        if let Some(unavailable) = &arm.unavailable {
            let (name, reason) = (escape(&arm.name), escape(&unavailable.reason));
            let install = escape(&unavailable.install);
            text.push_str(&parts::callout(&format!(
                "<p><strong>{name}</strong> was not measured: {reason}. To install it:</p>\n<pre class=\"command\"><code>{install}</code></pre>"
            )));
        }
    }
    text.push_str(&navigation(report));
    text.push_str("</header>\n");
    text
}

fn navigation(report: &Report) -> String {
    let mut links = Vec::new();
    if has_summary(report) && lookup::baseline(report).is_some() {
        links.push("<a href=\"#summary\">Summary</a>".to_owned());
    }
    if !report.judgement.caveats.is_empty() {
        links.push(format!("<a href=\"#caveats\">Caveats ({})</a>", report.judgement.caveats.len()));
    }
    let workloads = report.record.spec.workloads.iter().enumerate();
    links.extend(
        workloads.map(|(number, workload)| format!("<a href=\"#workload-{number}\">{}</a>", escape(&workload.name))),
    );
    if !report.judgement.gates.is_empty() {
        links.push("<a href=\"#gates\">Gates</a>".to_owned());
    }
    let resources = resources::table(report).map(|_| ("resources", "Resources"));
    let always = [("trials", "Trials"), ("arms", "Arms"), ("fingerprint", "Fingerprint")];
    let link = |(id, title)| format!("<a href=\"#{id}\">{title}</a>");
    links.extend(resources.into_iter().chain(always).map(link));
    format!("<nav aria-label=\"Sections\"><ul><li>{}</li></ul></nav>\n", links.join("</li><li>"))
}

/// The ratios of all workloads at a glance. Nothing for an invalid run: there is nothing to see at a glance.
fn summary(report: &Report) -> Result<String, RenderError> {
    let Some(baseline) = lookup::baseline(report).filter(|_| has_summary(report)) else { return Ok(String::new()) };
    let mut figures = String::new();
    for metric in Metric::all().filter(|metric| metric.is_headline) {
        if let Some(chart) = forest::chart(report, metric)? {
            let title = parts::capitalised(metric.words);
            let mut compared = report.judgement.comparisons.iter().filter(|compared| compared.metric == metric);
            let explanation = match compared.any(|compared| compared.not_ranked.is_some()) {
                true => "ratio to the baseline, 95 % interval, logarithmic; ✕ may not be ranked",
                false => "ratio to the baseline, 95 % interval, logarithmic",
            };
            figures.push_str(&figure(&title, explanation, &chart));
        }
    }
    let title = format!("Compared with {}", baseline.name);
    Ok(section("summary", &title, &format!("<div class=\"charts\">\n{figures}</div>\n")))
}

fn has_summary(report: &Report) -> bool {
    !report.judgement.comparisons.is_empty() && report.judgement.verdict != Verdict::Invalid
}

fn caveats(report: &Report) -> String {
    match report.judgement.caveats.as_slice() {
        [] => String::new(),
        caveats => section("caveats", "Before you believe a number", &list("plain", caveats)),
    }
}

fn workload_section(report: &Report, number: usize, workload: &Workload) -> Result<String, RenderError> {
    let asked = describe::asked(workload, report.record.driver);
    let mut body = format!("<p class=\"asked\">{}</p>\n", escape(&asked));
    let latency = if lookup::is_open_loop(workload) {
        "solid: intended, from the instant a request was due; dashed: service, from its send"
    } else {
        "at each percentile the median over valid trials; both axes logarithmic"
    };
    let figures = [
        ("Throughput", "median over trials, 95 % interval", bars::chart(report, &workload.name)?),
        ("Latency percentiles", latency, curves::chart(report, workload)?),
        (
            "Latency against load",
            "steps of the search, both axes logarithmic; the line across is the target",
            load_curve::chart(report, workload)?,
        ),
        (
            "Trials in the order they ran",
            "one mark for each, ✕ an invalid one; the axis need not begin at 0",
            scatter::chart(report, &workload.name)?,
        ),
    ];
    let figures: String = figures
        .into_iter()
        .filter_map(|(title, explanation, chart)| Some(figure(title, explanation, &chart?)))
        .collect();
    if !figures.is_empty() {
        body.push_str(&format!("<div class=\"charts\">\n{figures}</div>\n"));
    }
    let name = &workload.name;
    if let Some(line) = measures::nothing_measured(report, workload) {
        body.push_str(&list("plain notes", &[line]));
        return Ok(section(&format!("workload-{number}"), name, &body));
    }
    body.push_str(&table(&format!("{name}: results"), &measures::results(report, workload)));
    if let Some(comparisons) = measures::comparisons(report, workload) {
        body.push_str(&table(&format!("{name}: comparisons"), &comparisons));
    }
    if let Some(curves) = curve_of_load::table(report, workload) {
        body.push_str(&details("Latency against load", &table(&format!("{name}: latency against load"), &curves)));
    }
    if let Some(requests) = requests::table(report, workload) {
        body.push_str(&table(&format!("{name}: as the API server says"), &requests));
    }
    body.push_str(&list("plain notes", &measures::notes(report, workload, &[])));
    if let Some(all) = measures::comparisons_in_full(report, workload) {
        body.push_str(&details("Every metric compared", &table(&format!("{name}: every metric"), &all)));
    }
    Ok(section(&format!("workload-{number}"), name, &body))
}

fn trials(report: &Report) -> String {
    let mut statements = ledger::trials_summary(report);
    statements.extend(ledger::lost_trials(report).into_iter().map(|(which, why)| format!("✗ {which}: {why}")));
    let mut body = list("plain", &statements);
    body.push_str(&details("Every trial", &wrapping_table("Every trial", &ledger::trials(report))));
    section("trials", "Trials", &body)
}

fn arms(report: &Report) -> String {
    let mut body = table("Arms", &ledger::arms(report));
    let commands: String = report
        .record
        .arms
        .iter()
        .filter(|arm| !arm.command.is_empty())
        .map(|arm| {
            let (name, command) = (escape(&arm.name), escape(&ledger::command_line(arm)));
            format!("<h3>{name}</h3>\n<pre class=\"command\"><code>{command}</code></pre>\n")
        })
        .collect();
    if !commands.is_empty() {
        body.push_str(&details("Command lines", &commands));
    }
    section("arms", "Arms", &body)
}

fn fingerprint(report: &Report) -> String {
    let fingerprint = &report.record.fingerprint;
    let facts: String = fingerprint
        .facts
        .iter()
        .map(|(name, fact)| format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(fact)))
        .collect();
    let hash = escape(&fingerprint.hash);
    let body = format!(
        "<p>Runs with another hash than <code>{hash}</code> were not measured under the same conditions.</p>\n<dl>\n{facts}</dl>\n"
    );
    section("fingerprint", "Fingerprint", &body)
}

fn spec(report: &Report) -> Result<String, RenderError> {
    let yaml = serde_yaml::to_string(&report.record.spec).map_err(|error| RenderError::Spec(error.to_string()))?;
    let body = details("The run's spec as YAML", &format!("<pre><code>{}</code></pre>\n", escape_block(&yaml)));
    Ok(section("spec", "What was asked", &body))
}

#[cfg(test)]
mod tests;
