//! The table for scripts: what `peers/fetch` fetches and `kind/images` puts into images. Checked in as `peers/engines.tsv`.

use std::fmt::Write as _;

use super::{ENGINES, Source};

/// The table as lines of words with tabs between them; `#` begins a comment.
pub fn tsv() -> String {
    let mut text = String::from(
        "# What scripts must know of the engines: the rows of crds/src/engine/table.rs, written by\n\
         # make generate\n\
         # SOURCE is `crate` (built here), `peer` (fetched by every peers/fetch), `on-request` (only by name) or\n\
         # `by-hand` (by nobody: the user puts it there); PACKAGE its name there.\n\
         # ENGINE\tSOURCE\tPACKAGE\tVERSION\tIMAGE\tEXECUTABLES\n",
    );
    for engine in ENGINES {
        let (source, package) = match engine.source {
            Source::Crate(name) => ("crate", name),
            Source::Peer(name) => ("peer", name),
            Source::PeerOnRequest(name) => ("on-request", name),
            Source::ByHand(_) => ("by-hand", engine.name),
        };
        let (name, version, image) = (engine.name, engine.default_version, engine.image);
        let executables = engine.executables.join(",");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}\t{source}\t{package}\t{version}\t{image}\t{executables}");
    }
    text
}
