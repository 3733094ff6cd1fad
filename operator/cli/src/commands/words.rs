//! `storebench completion SHELL` and `storebench man`: what shells and `man` know of the command line, made from it.

use std::path::Path;

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;
use service_kit::console;

use crate::exit::Exit;

pub(crate) fn completion(command: &mut Command, shell: Shell) -> anyhow::Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(shell, command, "storebench", &mut text);
    print(text)
}

/// All pages: printed one behind another, or as files `storebench.1`, `storebench-run.1` and so on in a directory, which is made where
/// there is none.
pub(crate) fn man(command: Command, directory: Option<&Path>) -> anyhow::Result<Exit> {
    let pages = pages(command)?;
    let Some(directory) = directory else { return print(pages.into_iter().flat_map(|(_, text)| text).collect()) };
    std::fs::create_dir_all(directory).with_context(|| format!("{}: cannot be made", directory.display()))?;
    for (name, text) in pages {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("{}: cannot be written", path.display()))?;
        console::print(format!("{}\n", path.display()))?;
    }
    Ok(Exit::Passed)
}

/// The page of the program, and those of its commands, by the names of their files.
fn pages(command: Command) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let commands = command.get_subcommands().map(|subcommand| {
        let (program, name) = (command.get_name(), subcommand.get_name());
        subcommand.clone().display_name(format!("{program}-{name}")).bin_name(format!("{program} {name}"))
    });
    let mut pages = Vec::new();
    for of in std::iter::once(command.clone()).chain(commands) {
        let page = clap_mangen::Man::new(of);
        let mut text = Vec::new();
        page.render(&mut text)?;
        pages.push((page.get_filename(), text));
    }
    Ok(pages)
}

fn print(text: Vec<u8>) -> anyhow::Result<Exit> {
    console::print(String::from_utf8(text)?)?;
    Ok(Exit::Passed)
}
