//! What this server does not have, said as a Redis without it says it: modules and the cluster. And LOLWUT.

use super::options::{integer, is};
use crate::REDIS_VERSION;
use crate::failure::{Failure, Outcome};
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;

const NO_CLUSTER: Failure = Failure::new("ERR This instance has cluster support disabled");

/// READONLY, READWRITE, ASKING, CLUSTER.
pub(super) fn cluster_only(_: &mut Server, _: &mut Session, _: Args<'_>) -> Outcome {
    Err(NO_CLUSTER)
}

pub(super) fn module_list(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.array(0);
    Ok(())
}

/// As where `enable-module-command` says no: there is nothing to load them with. Said before it is queued.
pub(super) const NO_MODULES: Failure = Failure::new(
    "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you can run it from a local \
     connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);

pub(super) fn module_load(_: &mut Server, _: &mut Session, _: Args<'_>) -> Outcome {
    Err(NO_MODULES)
}

/// Every version but two has the version for a picture.
pub(super) fn lolwut(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if let (Some(word), Some(version)) = (args.get(1), args.get(2))
        && is(word, "VERSION")
    {
        // Pictures have sizes.
        let sizes = match integer(version)? {
            5 => 3,
            6 => 2,
            _ => 0,
        };
        args.from(3).iter().take(sizes).try_for_each(|size| integer(size).map(drop))?;
    }
    client.reply.verbatim(&format!("Redis ver. {REDIS_VERSION}\n"));
    Ok(())
}
