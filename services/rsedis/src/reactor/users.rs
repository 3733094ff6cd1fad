//! The file of users (`aclfile`): read when it is asked for, and replaced as a whole.

use std::io;
use std::path::{Path, PathBuf};

use wal::files::{Directory, File as _};

use super::{Reactor, Sockets};
use crate::acl::Users;
use crate::command;
use crate::log;
use crate::server::Server;

/// The file's folder and its name.
fn place(server: &Server) -> (PathBuf, String) {
    let path = Path::new(server.settings.text("dir")).join(server.settings.text("aclfile"));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    (path.parent().map(Path::to_path_buf).unwrap_or_default(), name)
}

/// Reads the file of users, if the settings name one.
pub fn load<D: Directory>(server: &mut Server, open: fn(&Path) -> io::Result<D>) -> Result<(), String> {
    let file = server.settings.text("aclfile").to_owned();
    if file.is_empty() {
        return Ok(());
    }
    let (folder, name) = place(server);
    let text = open(&folder).and_then(|directory| directory.open(&name)?.read());
    let text = text.map_err(|error| format!("Error loading ACLs, opening file '{file}': {error}"))?;
    let users = Users::read(&text, &file, server.users.allows_channels)?;
    command::acl::replace_users(server, users);
    Ok(())
}

impl<S: Sockets, D: Directory> Reactor<S, D> {
    pub(super) fn load_users(&mut self) -> Result<(), String> {
        load(&mut self.server, self.open).map_err(|error| format!("ERR {error}"))
    }

    pub(super) fn save_users(&mut self) -> Result<(), String> {
        self.try_save_users().map_err(|error| {
            log::warning(format_args!("ACL SAVE: {error}"));
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information"
                .to_owned()
        })
    }

    fn try_save_users(&self) -> io::Result<()> {
        let (folder, name) = place(&self.server);
        let directory = (self.open)(&folder)?;
        let temporary = format!("temp-{name}");
        let text = self.server.users.text();
        let file = directory.create_zeroed(&temporary, text.len() as u64)?;
        file.write_at(&text, 0)?;
        file.sync_data()?;
        directory.rename(&temporary, &name)?;
        directory.sync()
    }
}
