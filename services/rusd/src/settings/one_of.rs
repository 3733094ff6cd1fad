//! Names of a list, where a star stands for all: etcd's `--host-whitelist` and `--cors`.

/// Names that are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOf(Option<Vec<String>>);

impl OneOf {
    /// Of a flag's value; without one, all are taken.
    pub fn new(list: Option<&str>) -> Self {
        let names: Vec<String> = list.unwrap_or("*").split(',').map(|name| name.trim().to_owned()).collect();
        let takes_all = names.iter().any(|name| name == "*") || names.iter().all(String::is_empty);
        Self((!takes_all).then_some(names))
    }

    /// Whether every name is taken.
    pub fn takes_all(&self) -> bool {
        self.0.is_none()
    }

    /// Whether this name is.
    pub fn takes(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.iter().any(|other| other == name))
    }
}
