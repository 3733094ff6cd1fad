//! Arguments and variables of a store that storebench itself sets.

use storebench_crds::storage_service::StorageServiceSpec;

use crate::engine::{self, Engine};

/// Variables of the dynamic loader: `LD_PRELOAD`, `LD_AUDIT`, `LD_LIBRARY_PATH` and their like.
const LOADER_PREFIX: &str = "LD_";

/// The flag of Redis and of Valkey that does the same.
const MODULE_FLAG: &str = "loadmodule";

const PUTS_CODE: &str =
    "puts other code into the store, which may take back what is asked of it and make up what it counts: remove it";

/// Arguments and variables that would take back what storebench sets, in every spelling that the servers take: one
/// dash or two, a value after `=` or a space, capitals, and the variables of those that read their flags from there. By field.
pub(super) fn reserved(engine: &Engine, spec: &StorageServiceSpec) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (index, argument) in spec.args.iter().enumerate() {
        let field = format!("spec.args[{index}]");
        if argument.contains(['\n', '\r']) {
            found.push((field, "has a line break, after which Redis would read another setting: remove it".into()));
            continue;
        }
        let flag = match engine::flag_of(engine.dialect, argument, index == 0) {
            Ok(Some(flag)) => flag,
            Ok(None) => continue,
            Err(text) => {
                found.push((field, text));
                continue;
            }
        };
        let same = |reserved: &&&str| bare(reserved).eq_ignore_ascii_case(flag);
        if let Some(reserved) = engine.reserved_flags.iter().find(same) {
            let text = match flag.eq_ignore_ascii_case(MODULE_FLAG) {
                true => PUTS_CODE.into(),
                false => format!("{reserved} is set by storebench, from durability and placement: remove it"),
            };
            found.push((field, text));
        }
    }
    for (index, variable) in spec.env.iter().enumerate() {
        if variable.name.starts_with(LOADER_PREFIX) {
            found.push((format!("spec.env[{index}].name"), PUTS_CODE.into()));
        }
    }
    let Some(prefix) = engine.environment_prefix else { return found };
    for (index, variable) in spec.env.iter().enumerate() {
        let same = |reserved: &&&str| {
            let name = format!("{prefix}{}", bare(reserved).replace('-', "_"));
            variable.name.eq_ignore_ascii_case(&name)
        };
        if let Some(reserved) = engine.reserved_flags.iter().find(same) {
            let text = format!("means {reserved}, which storebench sets from durability and placement: remove it");
            found.push((format!("spec.env[{index}].name"), text));
        }
    }
    found
}

fn bare(flag: &str) -> &str {
    flag.trim_start_matches('-')
}
