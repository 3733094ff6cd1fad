//! What makes load, and what measures a store beside it.
//!
//! `bench-job` reads a [`storebench_crds::job::JobSpec`], loads one arm, and reports as that module describes. It runs
//! the same in a pod and under an embedded run; it has no Kubernetes permissions but those that a job's kubeconfig gives it on
//! the API server that it loads.
//!
//! The rooms, from the outside in; each uses only those below it:
//!
//! | room | what is in it |
//! | --- | --- |
//! | [`job`] | the program `bench-job`: its command line, its job, workload after workload |
//! | [`sidecar`] | the programs `store-meter` and `control-plane-meter`, which stand beside what they measure |
//! | [`family`] | one folder for each workload family: what a client does, how answers are checked, how a store is probed |
//! | [`load`] | what is the same for every family: threads, phases, when to send, several processes, whether the loader can be believed |
//! | [`measure`] | what a store uses: processes, disks, syncs, and the meters that are asked; and who else uses the machine |
//! | [`report`] | what is observed, and who is told: the driver, people, a scraper |
//! | [`content`] | what is written and what must come back: keys, values, versions, seeds |
//! | [`net`] | connections to a store, HTTP to ask and to answer |
//!
//! [`failure`] says what is wrong with a store in one line; everybody uses it.

pub mod content;
pub mod failure;
pub mod family;
pub mod job;
pub mod load;
pub mod measure;
pub mod net;
mod program;
pub mod report;
pub mod sidecar;

pub use job::command_line::main_with;
