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
mod json_schema;
mod junit;
mod ledger;
mod levels;
mod load_curve;
mod lookup;
mod markdown;
mod matrix;
mod measures;
mod requests;
mod resources;
mod safe_line;
mod table;
mod text;
mod trend;
mod two_runs;
mod wording;

#[cfg(test)]
pub(crate) mod fixture;

pub use document::Document;
pub use html::{RenderError, document_html, html, html_of_several, levels_html, suite_html};
pub use json::{JsonError, figures_from_json, from_json, json, json_list, list_from_json};
pub use json_schema::result_schema;
pub use junit::junit;
pub use levels::{LevelsError, TwoLevels};
pub use markdown::{document_markdown, levels_markdown, markdown};
pub use matrix::{Matrix, MatrixRow, matrix};
pub use text::{document_text, levels_text, text};
pub use trend::trends;
pub use two_runs::two_runs;

pub use crate::judgement::Report;
use crate::units;
