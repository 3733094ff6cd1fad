//! The report: one record and its judgement, as text, Markdown, single-file HTML, or JSON; [`TwoLevels`] of two of them; and a
//! [`Document`] of what several runs say together ([`crate::across`]).
//!
//! Promises: pure functions; the three renderings for people say the same, because they render the same tables and the
//! same words; text from outside cannot control a terminal, break a table, or become markup; an arm is
//! never called better where the judgement does not allow it.

mod describe;
mod document;
mod family;
mod html;
mod json;
mod ledger;
mod levels;
mod lookup;
mod markdown;
mod measures;
mod requests;
mod resources;
mod safe_line;
mod table;
mod text;
mod trend;
mod two_runs;
pub(crate) mod units;
mod wording;

#[cfg(test)]
pub(crate) mod fixture;

use serde::{Deserialize, Serialize};

pub use document::Document;
pub use html::{RenderError, document_html, html, html_of_several, levels_html};
pub use json::{JsonError, from_json, json, json_list, list_from_json};
pub use levels::{LevelsError, TwoLevels};
pub use markdown::{document_markdown, levels_markdown, markdown};
pub use text::{document_text, levels_text, text};
pub use trend::trends;
pub use two_runs::two_runs;

use crate::judgement::Judgement;
use crate::record::RunRecord;

/// A record and what it says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What was asked and measured.
    pub record: RunRecord,
    /// What it says.
    pub judgement: Judgement,
}
