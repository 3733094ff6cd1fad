//! Lines of fields that are parted by tabs: for programs as they are, and on a terminal in columns.

use service_kit::console;
use std::io::{self, IsTerminal};

/// Prints them.
pub fn print(lines: &str) -> io::Result<()> {
    if io::stdout().is_terminal() { console::print(in_columns(lines)) } else { console::print(lines) }
}

/// Each field but the last of a line as wide as the widest one below or above it.
fn in_columns(lines: &str) -> String {
    let mut widths: Vec<usize> = Vec::new();
    let fields = |line: &str| line.split('\t').map(|field| field.chars().count()).collect::<Vec<usize>>();
    for line in lines.lines().map(fields) {
        for (at, width) in line.iter().enumerate().take(line.len() - 1) {
            match widths.get_mut(at) {
                Some(widest) => *widest = (*widest).max(*width),
                None => widths.push(*width),
            }
        }
    }
    let mut text = String::new();
    for line in lines.lines() {
        let last = line.split('\t').count() - 1;
        for (at, field) in line.split('\t').enumerate() {
            text += field;
            let blanks = widths.get(at).map_or(0, |width| width + 2 - field.chars().count().min(*width));
            text.extend((0..blanks).filter(|_| at < last).map(|_| ' '));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_below_each_other_and_lines_without_any_are_left_alone() {
        let lines = "database\tstate\ttxid\n/ü.db\twaiting: no such file\t0\nall is well: a whole sentence\n/long/name.db\trunning\t12\n";
        let expected = "database       state                  txid\n/ü.db          waiting: no such file  0\nall is well: a whole sentence\n\
                        /long/name.db  running                12\n";
        assert_eq!(in_columns(lines), expected);
    }
}
