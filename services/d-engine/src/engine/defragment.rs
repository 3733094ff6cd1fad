//! The files of a member's state, rewritten when it is asked for: the tree merges files by itself, and by and by.

use std::sync::Arc;

use d_engine_client::Error;

use super::{Node, denied_but_to_administrators};
use crate::state::Defragmented;

impl Node {
    /// Rewrites the files of this member's state, so that they have no more than what is there. The member goes on meanwhile; it takes
    /// the disk room of both, and as long as all of the state takes to be read and written. For administrators, one at a time; on a tokio
    /// runtime.
    pub async fn defragment(&self) -> Result<Defragmented, Error> {
        if !self.users().is_admin(self.principal()) {
            return Err(denied_but_to_administrators());
        }
        let Some(rewrite) = self.shown().defragmentation() else {
            return Err(Error::Invalid("the state of this member is in memory: it has no files to defragment".into()));
        };
        let turn = Arc::clone(&self.0.defragmenting).try_acquire_owned().map_err(|_| Error::Busy)?;
        let rewritten = tokio::task::spawn_blocking(move || {
            // Until it is done, also where nobody waits for it any more.
            let _turn = turn;
            rewrite()
        });
        let rewritten = rewritten.await.map_err(|_| Error::Stopped)?;
        rewritten.map_err(|error| Error::UnknownOutcome(error.to_string()))
    }
}
