//! `storebench completion SHELL` and `storebench man`: what shells and `man` know of the command line, made from it.

use clap::Command;
use clap_complete::Shell;

use crate::exit::Exit;

pub(crate) fn completion(command: &mut Command, shell: Shell) -> anyhow::Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(shell, command, "storebench", &mut text);
    print(text)
}

/// The page of the program, and behind it those of its commands.
pub(crate) fn man(command: Command) -> anyhow::Result<Exit> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        let name = format!("storebench-{}", subcommand.get_name());
        clap_mangen::Man::new(subcommand.clone().display_name(name)).render(&mut text)?;
    }
    print(text)
}

fn print(text: Vec<u8>) -> anyhow::Result<Exit> {
    super::print(&String::from_utf8(text)?)?;
    Ok(Exit::Passed)
}
