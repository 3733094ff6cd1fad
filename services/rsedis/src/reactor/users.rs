//! The files that people write as well: users (`aclfile`) and redis.conf. They are replaced as a whole.

use std::io;
use std::path::{Path, PathBuf};

use service_kit::directory::above;
use wal::files::{Directory, File as _};

use super::Reactor;
use super::sockets::Sockets;
use crate::acl::{self, Users};
use crate::command;
use crate::log;
use crate::server::Server;
use crate::settings::{self, Extent, Outside, Start};

/// The file's folder and its name.
fn place(server: &Server) -> (PathBuf, String) {
    let path = Path::new(server.settings.text("dir")).join(server.settings.text("aclfile"));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    (path.parent().map(Path::to_path_buf).unwrap_or_default(), name)
}

/// Reads the file of users, if the settings name one. Whoever asked is at a slot.
pub fn load<D: Directory>(
    server: &mut Server,
    open: fn(&Path) -> io::Result<D>,
    asker: Option<usize>,
) -> Result<(), String> {
    let file = server.settings.text("aclfile").to_owned();
    if file.is_empty() {
        return Ok(());
    }
    let (folder, name) = place(server);
    let text = open(&folder).and_then(|directory| directory.open(&name)?.read());
    let text = text.map_err(|error| format!("Error loading ACLs, opening file '{file}': {error}"))?;
    let users = Users::read(&text, &file, server.users.allows_channels)?;
    command::acl::replace_users(server, users, asker);
    Ok(())
}

impl<S: Sockets, D: Directory> Reactor<S, D> {
    pub(super) fn load_users(&mut self, asker: Option<usize>) -> Result<(), String> {
        load(&mut self.server, self.opens.shared, asker).map_err(|error| format!("ERR {error}"))
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
        replace_file(&(self.opens.shared)(&folder)?, &name, &self.server.users.text())
    }

    /// CONFIG REWRITE.
    pub(super) fn rewrite_config(&self, extent: Extent) -> Result<(), String> {
        self.try_rewrite_config(extent).map_err(|error| {
            log::warning(format_args!("CONFIG REWRITE failed: {error}"));
            format!("ERR Rewriting config file: {error}")
        })
    }

    fn try_rewrite_config(&self, extent: Extent) -> io::Result<()> {
        let path = Path::new(&self.server.settings.file);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let directory = (self.opens.shared)(above(path))?;
        let before = directory.open(&name)?.read()?;
        // Users of a file of their own stay there.
        let users = match self.server.settings.text("aclfile") {
            "" => self.server.users.configuration(),
            _ => Vec::new(),
        };
        let text = settings::rewrite(&self.server.settings, &users, &before, extent);
        self.check_config(&text, !users.is_empty()).map_err(|why| {
            io::Error::other(format!("a server could not begin with the new file, and the old one stays: {why}"))
        })?;
        replace_file(&directory, &name, &text)
    }

    /// Reads the new redis.conf as a server does that begins.
    fn check_config(&self, text: &[u8], has_users: bool) -> Result<(), String> {
        let Server { settings, users, .. } = &self.server;
        let read = |path: &Path| match path.to_str() {
            Some(name) if name == settings.file => Ok(text.to_vec()),
            // What is read there is not known before.
            Some("-") => Ok(Vec::new()),
            // Another one, which it includes.
            _ => std::fs::read(path),
        };
        let outside = Outside {
            read: &read,
            list: &settings::list_files,
            check_user: acl::check_user,
            is_command: command::is_own_name,
        };
        let Start::Serve(again) = settings::read_command_line(std::slice::from_ref(&settings.file), "", outside)?
        else {
            return Err("its name is taken for an option".to_owned());
        };
        if !has_users {
            return Ok(());
        }
        let mut same = Users::new(users.allows_channels);
        same.configure(&again.users)?;
        match users.iter().find(|(name, user)| !same.get(name).is_some_and(|same| same.is_like(user))) {
            Some((name, _)) => Err(format!("user {} would be another", String::from_utf8_lossy(name))),
            None => Ok(()),
        }
    }
}

/// Puts a text in the place of a file: either the old one or the new one is there, whatever happens.
fn replace_file<D: Directory>(directory: &D, name: &str, text: &[u8]) -> io::Result<()> {
    let temporary = format!("temp-{name}");
    let file = directory.create_zeroed(&temporary, text.len() as u64)?;
    file.write_at(text, 0)?;
    file.sync_data()?;
    directory.rename(&temporary, name)?;
    directory.sync()
}
