//! Makes the load: what is the same whatever is asked for.
//!
//! A workload family is a [`Family`] ([`contract`]): what one thread's clients do. [`coordinator`] runs its phases on threads
//! ([`thread`]), each with connections, clients and keys of its own. A client sees the machinery through its [`session`]; when
//! it sends is decided in [`pace`], by chance if the load asks for that ([`arrivals`]); an [`alarm`] wakes it. The highest rate that keeps to
//! a target is looked for by a pure [`search`]. Several load processes divide the load by [`share`] and
//! begin together at a [`barrier`]. Whether the loader can be believed is decided in [`audit`], and where a request failed by its
//! [`pulse`]; whether the store kept its durability in [`durability`]. A store that is somebody's is treated as [`outside`] says. A [`fault`] of the store is caused by
//! the driver, who is asked for it through its [`control`].

pub mod alarm;
pub mod arrivals;
pub mod audit;
pub mod barrier;
pub mod contract;
pub mod control;
pub mod coordinator;
pub mod durability;
pub mod fault;
pub mod highest_rate;
pub mod outside;
pub mod pace;
pub mod pulse;
pub mod search;
pub mod session;
pub mod share;
mod thread;

pub use contract::{Context, Ending, Family, Onlooker, Seat, Surroundings};
pub use coordinator::run;
