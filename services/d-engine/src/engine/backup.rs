//! All of a member's state, as of one moment, for who saves it.

use std::io::{self, Write};
use std::sync::Arc;

use d_engine_client::Error;

use super::Node;
use crate::state::save_backup;

impl Node {
    /// All of the state as of a moment, with everything that was acknowledged before: what is returned writes it, and takes as long as who
    /// takes it. A few at a time: each keeps the state of its moment, and a thread. For administrators.
    pub async fn backup(&self) -> Result<impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + use<>, Error> {
        self.administers()?;
        let place = Arc::clone(&self.0.backups).try_acquire_owned().map_err(|_| Error::Busy)?;
        self.is_ready().await?;
        let view = self.shown().view();
        let (rows, applied) = (Arc::clone(&view.rows), view.applied);
        Ok(move |out: &mut dyn Write| {
            let _place = place;
            save_backup(rows, applied, out)
        })
    }
}
