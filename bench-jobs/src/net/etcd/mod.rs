//! A client of the etcd v3 API, whoever needs one: the family that loads it, those that load key-value stores of several protocols, and probes.

pub mod messages;
pub mod store;
