//! FUNCTION. Libraries cannot be loaded, so there are none.

use super::options::is;
use crate::failure::{Failure, Outcome};
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;

/// Removes all libraries, of which there are none.
pub(super) fn flush(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let is_understood = match args.get(2) {
        None => true,
        Some(word) => args.len() == 3 && (is(word, "SYNC") || is(word, "ASYNC")),
    };
    if !is_understood {
        return Err(Failure::new("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    client.reply.ok();
    Ok(())
}
