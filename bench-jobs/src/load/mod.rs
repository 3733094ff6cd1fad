//! Makes the load: what is the same whatever is asked for.
//!
//! A workload family is a [`Family`] ([`contract`]): what one thread's clients do. [`coordinator`] runs its phases on threads
//! ([`thread`]), each with connections, clients and keys of its own. A client sees the machinery through its [`session`]; when
//! it sends is decided in [`pace`], to which an [`alarm`] wakes it. Several load processes divide the load by [`share`] and
//! begin together at a [`barrier`]. Whether the loader can be believed is decided in [`audit`], and whether the store kept its
//! durability in [`durability`]. What a driver is asked to do meanwhile goes through its [`control`].

pub mod alarm;
pub mod audit;
pub mod barrier;
pub mod contract;
pub mod control;
pub mod coordinator;
pub mod durability;
pub mod pace;
pub mod session;
pub mod share;
mod thread;

pub use contract::{Context, Ending, Family, Onlooker, Seat, Surroundings};
pub use coordinator::run;
