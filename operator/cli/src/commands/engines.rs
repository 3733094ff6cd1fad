//! `storebench engines`: what is installed here, and the command that installs what is not.

use std::fmt::Write as _;

use storebench_core::engine::ENGINES;

use crate::embedded::peers;
use crate::exit::Exit;

pub(crate) fn engines() -> anyhow::Result<Exit> {
    let mut table = format!("{:<8} {:<9} {:<10} WHERE, OR HOW TO INSTALL\n", "ENGINE", "PROTOCOL", "VERSION");
    for engine in ENGINES {
        let protocol = format!("{:?}", engine.protocol);
        let installed = peers::installed(engine);
        if installed.is_empty() {
            writeln!(table, "{:<8} {protocol:<9} {:<10} {}", engine.name, "-", engine.install)?;
        }
        for binary in installed {
            writeln!(table, "{:<8} {protocol:<9} {:<10} {}", engine.name, binary.version, binary.path.display())?;
        }
    }
    super::print(&table)?;
    Ok(Exit::Passed)
}
