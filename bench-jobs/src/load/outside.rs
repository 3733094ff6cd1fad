//! A store that is somebody's: what may be done to it.
//!
//! Keys are written below a namespace that is drawn anew for each workload, so that none of them can be a key of somebody else, and only keys
//! below it are deleted. A store that holds any key is not loaded without consent. What a load that was killed has left behind stays,
//! and keeps the store from being loaded again until somebody removes it: who wrote it cannot be told any more. The driver, which was told
//! what it is ([`run`]), says so. Whom it logs in as, and how it is reached over TLS, is read here; what a store says that refuses it is given a
//! remedy.

use std::env;
use std::fs;
use std::io;

pub use storebench_crds::external::NAMESPACE_NAME as NAME;
use storebench_crds::external::{External, PasswordFrom};
use storebench_crds::job::{JobLine, JobOutcome, StoreReading};
use tokio::runtime::Builder;

use crate::failure::{Failure, Kind};
use crate::load::{Context, Ending, Surroundings};
use crate::net::file::unreadable;
use crate::net::tls::Tls;

/// What a load must know of a store that is somebody's.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    /// Whether it may hold keys of others.
    pub allows_data: bool,
    /// As whom to log in. Absent: not at all.
    pub credentials: Option<Credentials>,
    /// How it is reached over TLS. Absent: it is spoken to in the clear.
    pub tls: Option<Tls>,
}

/// A user and a password. Shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Empty: none.
    pub user: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Outside {
    /// Reads the password and what TLS needs, if there is any. Errors: one line that names the field, and the file or variable.
    pub fn of(external: &External) -> io::Result<Self> {
        let credentials = external.password_from.as_ref().map(|from| -> io::Result<Credentials> {
            Ok(Credentials { user: external.user.clone().unwrap_or_default(), password: password(from)? })
        });
        let tls = external.tls.as_ref().map(Tls::of).transpose()?;
        Ok(Self { allows_data: external.allow_data, credentials: credentials.transpose()?, tls })
    }

    /// All that cannot be read, one line each, as [`Self::of`] says of the first.
    pub fn problems(external: &External) -> Vec<io::Error> {
        let of_tls = external.tls.as_ref().map(Tls::problems).unwrap_or_default();
        let of_password = external.password_from.as_ref().and_then(|from| password(from).err());
        of_tls.into_iter().chain(of_password).collect()
    }

    /// Whether a store that holds so many keys may be loaded, in words if not.
    pub fn judge(&self, keys: u64, endpoint: &str) -> Result<(), Failure> {
        if keys == 0 || self.allows_data {
            return Ok(());
        }
        let held = if keys == 1 { "1 key".to_owned() } else { format!("{keys} keys") };
        Err(Failure::new(format_args!(
            "the store at {endpoint} holds {held}, so somebody may be using it: give one that is empty (what a load that was killed left \
             begins with {NAME}), or set external.allowData: true, with which these are left alone"
        )))
    }
}

/// The first line of what is there.
fn password(from: &PasswordFrom) -> io::Result<String> {
    let (place, text) = match (&from.file, &from.environment) {
        (Some(path), _) => {
            let place = format!("external.passwordFrom.file: {path}");
            let text = fs::read_to_string(path);
            let text = text.map_err(|error| io::Error::other(format!("{place}: {}", unreadable(&error))))?;
            (place, text)
        }
        (None, Some(name)) => {
            let place = format!("external.passwordFrom.environment: {name}");
            let text = env::var(name).map_err(|error| io::Error::other(format!("{place}: {}", unset(&error))))?;
            (place, text)
        }
        (None, None) => {
            let text = "external.passwordFrom: names a Secret, and no file is there: add file or environment";
            return Err(io::Error::other(text));
        }
    };
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::Error::other(format!("{place}: its first line is empty"))),
    }
}

/// Why a variable has no password, without what it has: the error itself shows that.
fn unset(error: &env::VarError) -> &'static str {
    match error {
        env::VarError::NotPresent => "is not set: export it where storebench is started",
        env::VarError::NotUnicode(_) => "is not UTF-8: give a password that is",
    }
}

/// What to look at where a client's certificate is not taken.
const CERTIFICATE: &str = "it may want another certificate of its clients: look at external.tls (certificateFile and keyFile, or tls.crt and \
                           tls.key of secretName)";

/// What to look at where the answer is of no use: also what a server says that was to be spoken to over TLS.
const PROTOCOL: &str = "what listens there does not speak the protocol of this engine: look at spec.engine and external.endpoints; if it speaks \
                        TLS, give external.tls";

/// What stores say that refuse this client, or that TLS says of them, and what to look at; the first that fits.
const REMEDIES: [(&str, &str); 12] = [
    ("NOAUTH", "it wants a password: give external.passwordFrom"),
    ("user name is empty", "it wants a user: give external.user and external.passwordFrom"),
    ("WRONGPASS", "look at external.user and external.passwordFrom"),
    ("authentication failed", "look at external.user and external.passwordFrom"),
    ("without any password configured", "it wants no password: remove external.passwordFrom"),
    ("authentication is not enabled", "it wants no password: remove external.user and external.passwordFrom"),
    ("UnknownIssuer", "external.tls.caFile (ca.crt of secretName) has not signed its certificate"),
    ("BadSignature", "external.tls.caFile (ca.crt of secretName) has not signed its certificate"),
    ("NotValidForName", "its certificate is for another name: give that in external.tls.serverName"),
    ("not valid for name", "its certificate is for another name: give that in external.tls.serverName"),
    ("fatal alert", CERTIFICATE),
    // For HTTP/2 this is a connection that broke.
    ("frame with invalid size", PROTOCOL),
];

/// A failure at the first look, with the field to look at where it is known.
fn with_remedy(failure: Failure, outside: &Outside) -> Failure {
    let text = failure.text();
    let known = REMEDIES.iter().find(|(said, _)| text.contains(said)).map(|(_, remedy)| *remedy);
    let of_kind = match failure.kind() {
        // As a store does to whoever does not speak TLS, or shows no certificate.
        Kind::HangUp if outside.tls.is_some() => Some(CERTIFICATE),
        Kind::HangUp => Some("if it speaks TLS, give external.tls"),
        Kind::Tls => Some("does it speak TLS there? if not, remove external.tls"),
        Kind::Protocol => Some(PROTOCOL),
        Kind::Other => None,
    };
    match known.or(of_kind) {
        Some(remedy) => Failure::new(format_args!("{text}: {remedy}")),
        None => failure,
    }
}

/// How a family behaves in a store that is somebody's.
pub(crate) trait Guest {
    /// Whether the store may be loaded; its version, if it says one.
    async fn look(&self, context: &Context, outside: &Outside) -> Result<Option<String>, Failure>;

    /// What the names of all keys that are written begin with, and the command by which a user removes them.
    fn leaves(&self, context: &Context, namespace: &str) -> (String, String);

    /// Removes what was written.
    async fn clean_up(&self, context: &Context) -> Result<(), Failure>;
}

/// Looks at a store that is somebody's, and writes nothing: whether it answers and may be loaded. The inner error has the remedy, the outer is
/// the loader's own.
pub(crate) fn look(context: &Context, guest: &impl Guest) -> io::Result<Result<Option<String>, Failure>> {
    let Some(outside) = &context.outside else { return Ok(Ok(None)) };
    Ok(block_on(guest.look(context, outside))?.map_err(|failure| with_remedy(failure, outside)))
}

/// Loads a store: looks at one that is somebody's before anything is written, and tells the driver what is about to stay there should
/// the load be killed. What was written below a namespace is removed afterwards; that it could not be is nothing that may stay unsaid.
pub(crate) fn run(
    context: Context,
    around: &Surroundings<'_>,
    guest: &impl Guest,
    load: impl FnOnce(Context) -> io::Result<Ending>,
) -> io::Result<Ending> {
    let workload = context.workload.clone();
    match look(&context, guest)? {
        Err(failure) => {
            let detail = failure.text().to_owned();
            return Ok(Ending { summary: None, outcome: JobOutcome::StoreFailed { workload, detail } });
        }
        Ok(None) => {}
        Ok(version) => {
            let reading = StoreReading { version, ..StoreReading::default() };
            around.report.line(&JobLine::Store { reading })?;
        }
    }
    let Some(namespace) = &context.namespace else { return load(context) };
    if context.outside.is_some() {
        let (prefix, removal) = guest.leaves(&context, namespace);
        around.report.line(&JobLine::Namespace { workload: workload.clone(), prefix, removal })?;
    }
    let ending = load(context.clone())?;
    match block_on(guest.clean_up(&context))? {
        Ok(()) => {
            if context.outside.is_some() {
                around.report.line(&JobLine::NamespaceRemoved { workload })?;
            }
            Ok(ending)
        }
        Err(failure) if ending.outcome == JobOutcome::Completed => {
            let detail = format!("what the load wrote could not be removed: {failure}");
            Ok(Ending { outcome: JobOutcome::StoreFailed { workload, detail }, ..ending })
        }
        Err(_) => Ok(ending),
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    Ok(Builder::new_current_thread().enable_all().build()?.block_on(work))
}

/// A name that no other load draws.
pub fn namespace() -> String {
    format!("{:08x}", rand::random::<u32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn external(fields: serde_json::Value) -> External {
        let mut all = serde_json::json!({ "endpoints": ["127.0.0.1:1"] });
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_store_with_keys_is_loaded_with_consent_only() {
        let careful = Outside::of(&external(serde_json::json!({}))).unwrap();
        assert!(careful.judge(0, "a:1").is_ok());
        let said = careful.judge(1, "a:1").unwrap_err();
        assert!(said.text().contains("holds 1 key,") && said.text().contains("allowData"), "{said}");
        let bold = Outside::of(&external(serde_json::json!({ "allowData": true }))).unwrap();
        assert!(bold.judge(u64::MAX, "a:1").is_ok());
    }

    #[test]
    fn a_password_is_read_from_its_file_and_shown_nowhere() {
        let folder = harness::folder();
        let path = folder.path().join("password");
        fs::write(&path, "s3cret\nnot this\n").unwrap();
        let fields = serde_json::json!({ "user": "bench", "passwordFrom": { "file": path } });
        let outside = Outside::of(&external(fields.clone())).unwrap();
        let credentials = outside.credentials.as_ref().unwrap();
        assert_eq!((credentials.user.as_str(), credentials.password.as_str()), ("bench", "s3cret"));
        assert!(!format!("{outside:?}").contains("s3cret"));
        fs::write(&path, "\n").unwrap();
        assert!(Outside::of(&external(fields.clone())).unwrap_err().to_string().ends_with("first line is empty"));
        fs::remove_file(&path).unwrap();
        let said = Outside::of(&external(fields)).unwrap_err().to_string();
        assert!(
            said.starts_with("external.passwordFrom.file: ") && said.contains("is not there: name a file that is"),
            "{said}"
        );
    }

    #[test]
    fn a_password_may_be_in_the_environment() {
        // A variable that everybody has.
        let here = serde_json::json!({ "passwordFrom": { "environment": "PATH" } });
        let outside = Outside::of(&external(here)).unwrap();
        let credentials = outside.credentials.unwrap();
        assert_eq!((credentials.user, credentials.password), (String::new(), env::var("PATH").unwrap()));
        let nowhere = serde_json::json!({ "passwordFrom": { "environment": "NO_SUCH_VARIABLE" } });
        let said = Outside::of(&external(nowhere)).unwrap_err().to_string();
        assert_eq!(
            said,
            "external.passwordFrom.environment: NO_SUCH_VARIABLE: is not set: export it where storebench is started"
        );
    }

    #[test]
    fn a_password_that_is_not_utf_8_is_not_shown() {
        use std::os::unix::ffi::OsStringExt as _;
        let value = std::ffi::OsString::from_vec(b"s3cret\xff".to_vec());
        let said = unset(&env::VarError::NotUnicode(value));
        assert!(said.contains("UTF-8") && !said.contains("s3cret"), "{said}");
    }

    #[test]
    fn who_is_refused_is_told_where_to_look() {
        let clear = Outside::default();
        let protocol = "does not speak the protocol of this engine: look at spec.engine";
        for (said, kind, field) in [
            ("DBSIZE: NOAUTH Authentication required.", Kind::Other, "external.passwordFrom"),
            ("AUTH: WRONGPASS invalid username-password pair", Kind::Other, "external.user and external.passwordFrom"),
            ("invalid peer certificate: UnknownIssuer", Kind::Tls, "external.tls.caFile"),
            ("no answer within 5s", Kind::Tls, "remove external.tls"),
            ("that was all", Kind::HangUp, "give external.tls"),
            ("what is this?", Kind::Protocol, protocol),
            ("Range at a:1: connection broke: frame with invalid size", Kind::HangUp, protocol),
        ] {
            let told = with_remedy(Failure::new(said).of_kind(kind), &clear);
            assert!(told.text().starts_with(said) && told.text().contains(field), "{told}");
        }
        // Our own words are not the store's.
        let ours = Failure::new("SET: ERR an account closed by the store over TLS");
        assert_eq!(with_remedy(ours.clone(), &clear), ours);
        let other = Failure::new("the store at a:1 holds 1 key");
        assert_eq!(with_remedy(other.clone(), &clear), other);
    }

    #[test]
    fn namespaces_are_not_drawn_twice() {
        let drawn: std::collections::HashSet<String> = (0..100).map(|_| namespace()).collect();
        assert!(drawn.len() > 98 && drawn.iter().all(|name| name.len() == 8));
    }
}
