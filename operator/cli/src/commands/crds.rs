//! `storebench crds`: the CustomResourceDefinitions, ready for `kubectl apply -f -`.

use service_kit::console;
use storebench_crds::schema::{definitions, to_yaml};

use crate::exit::Exit;

pub(crate) fn crds() -> anyhow::Result<Exit> {
    for definition in definitions() {
        console::print(format!("---\n{}", to_yaml(&definition)?))?;
    }
    Ok(Exit::Passed)
}
