//! What makes load: one module per workload family, and what they share.
//!
//! `bench-job` reads a [`storebench_crds::job::JobSpec`], loads one arm, and reports as that module describes. It runs
//! the same in a pod and under an embedded run; it has no Kubernetes permissions but those that a job's kubeconfig gives it on
//! the API server that it loads.
//!
//! From the outside in: [`command_line`] is the program, [`specification`] reads the job, [`job`] runs its workloads,
//! [`load`] runs one of them on its threads, and a family ([`family`]) is what a client does. A client sees the
//! machinery through its [`session`]. What is written and what must come back is in [`keys`], [`values`] and
//! [`expect`]; when it is sent in [`pace`]; what is observed in [`record`]; whether the loader can be believed in
//! [`audit`]. Several load processes divide the load by [`share`] and begin together at a [`barrier`].
//!
//! What the store uses is read by [`meter`], which is also what an embedded run uses. Where the store runs elsewhere, the
//! program [`store_meter`] stands beside it, and a job asks it through [`meters`]. What is neither store nor loader but uses
//! the machine all the same is named by [`foreign`]. A hosted control plane has a meter of its
//! own, in [`control_plane`].

pub mod alarm;
pub mod audit;
pub mod barrier;
pub mod command_line;
pub mod control_plane;
pub mod dial;
pub mod disk;
pub mod expect;
pub mod exposition;
pub mod failure;
pub mod family;
pub mod foreign;
pub mod fsyncs;
pub mod http_client;
pub mod http_server;
pub mod job;
pub mod keys;
pub mod load;
pub mod machine;
pub mod measures;
pub mod meter;
pub mod meters;
pub mod metrics;
pub mod pace;
mod program;
pub mod record;
pub mod report;
pub mod scrape;
pub mod seeds;
pub mod session;
pub mod share;
pub mod specification;
pub mod store_meter;
mod thread;
pub mod values;

pub use command_line::main_with;
