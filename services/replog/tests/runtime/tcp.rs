//! Members over real sockets on loopback, with and without TLS.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use replog::runtime::identity::{Founding, Identity as _, Known, Place, Said};
use replog::runtime::tcp::{Host, Peers, Tcp, TcpOptions, Tls, ask};
use replog::runtime::{Limits, Origin};
use replog::{Membership, Role};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::group::{LONG, Running, directories, settings, start_in};
use crate::identity::HasLog;

const GROUP: u64 = 0x7070;

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Who signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A member that shows a certificate of this authority and trusts another one.
    fn tls(&self, trusted: &Self) -> Tls {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["member.test".to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        let chain = vec![certificate.der().clone()];
        let key = || PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(trusted.0.der().clone()).unwrap();
        let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build().unwrap();
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key())
            .unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key())
            .unwrap();
        let (server, client) = (Arc::new(server), Arc::new(client));
        Tls {
            server: Arc::new(move || Arc::clone(&server)),
            client: Arc::new(move || Arc::clone(&client)),
            server_name: Some("member.test".into()),
        }
    }
}

/// Three members that know one another's addresses; each with a group and TLS of its own choice.
struct Three {
    members: Vec<(Running, Peers)>,
    addresses: BTreeMap<u64, String>,
    hosts: Vec<Arc<OfLog>>,
    /// Of the third, if it asks the others before it speaks to them.
    founding: Option<Founding>,
    scratch: harness::TempDir,
}

/// A server that knows which log its member has.
struct OfLog(AtomicU64);

impl Host for OfLog {
    fn note(&self, _: u64, _: Bytes) {}

    fn introduction(&self) -> Vec<u8> {
        Vec::new()
    }

    fn is_removed(&self, _: u64) -> bool {
        false
    }

    fn log(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Three {
    fn start(how: impl Fn(u64) -> (u64, Option<Tls>)) -> Self {
        Self::start_of([0; 3], how)
    }

    /// Members that know which log they have; 0: they do not.
    fn start_of(logs: [u64; 3], how: impl Fn(u64) -> (u64, Option<Tls>)) -> Self {
        Self::start_founding(logs, None, how)
    }

    fn start_founding(logs: [u64; 3], founding: Option<Founding>, how: impl Fn(u64) -> (u64, Option<Tls>)) -> Self {
        let hosts = logs.map(|log| Arc::new(OfLog(AtomicU64::new(log)))).to_vec();
        let listeners: Vec<_> = (0..3).map(|_| listen()).collect();
        let addresses = (1..).zip(&listeners).map(|(id, (_, address))| (id, address.to_string())).collect();
        let mut three = Self { members: Vec::new(), addresses, hosts, founding, scratch: harness::folder() };
        for (id, (listener, _)) in (1..).zip(listeners) {
            let (group, tls) = how(id);
            let member = three.member(id, listener, group, tls);
            three.members.push(member);
        }
        three
    }

    fn member(&self, id: u64, listener: TcpListener, group: u64, tls: Option<Tls>) -> (Running, Peers) {
        let host = Some(Arc::clone(&self.hosts[id as usize - 1]) as _);
        let founding = self.founding.clone().filter(|_| id == 3);
        let options = TcpOptions::new(id, group, vec![listener], self.addresses.clone());
        let tcp = TcpOptions { tls, host, founding, ..options };
        let tcp = Tcp::new(tcp);
        let peers = tcp.peers();
        let path = self.scratch.path().join(id.to_string());
        let origin = Origin::Found(Membership::of([1, 2, 3]));
        (start_in(id, settings(), Limits::default(), directories(&path), origin, Box::new(tcp)).unwrap(), peers)
    }

    /// Proposes at whoever leads.
    fn propose(&self, command: &str) -> (u64, u64) {
        let deadline = Instant::now() + LONG;
        loop {
            assert!(Instant::now() < deadline, "nobody leads");
            for (running, _) in self.members.iter().filter(|(running, _)| running.handle.leader().1) {
                if let Ok(committed) = running.propose(command) {
                    return (running.id, committed.index);
                }
            }
            std::thread::yield_now();
        }
    }

    fn all_apply(&self, command: &str) {
        let (_, index) = self.propose(command);
        for (running, _) in &self.members {
            running.wait_until_applied(index);
            assert!(running.commands().contains(&command.to_owned()));
        }
    }

    /// Member 3 hears nobody: its own requests for votes go nowhere either.
    fn third_is_alone(&self) {
        let others = [0, 1].map(|at: usize| &self.members[at].0);
        for (number, running) in (0..3).zip(others.iter().cycle()) {
            running
                .handle
                .wait_for(|status| status.leader.is_some_and(|leader| leader < 3), LONG)
                .expect("two can elect");
            self.propose(&format!("without it {number}"));
        }
        let status = self.members[2].0.handle.status();
        assert_eq!((status.leader, status.applied), (None, 1), "{status:?}");
    }
}

#[test]
fn three_members_over_tcp() {
    let three = Three::start(|_| (GROUP, None));
    (0..50).for_each(|number| three.all_apply(&format!("command {number}")));
}

#[test]
fn three_members_over_mutual_tls() {
    let authority = Authority::new();
    let three = Three::start(|_| (GROUP, Some(authority.tls(&authority))));
    (0..20).for_each(|number| three.all_apply(&format!("command {number}")));
    // More than a record of TLS holds.
    three.all_apply(&"x".repeat(300_000));
}

#[test]
fn a_member_of_another_group_is_refused() {
    let three = Three::start(|id| (GROUP + u64::from(id == 3), None));
    three.third_is_alone();
}

/// Two that elect, and a third that founds the group with nothing, of which they say this.
fn with_a_founder(said: &Arc<Mutex<Said>>, folder: &Path) -> (Three, Known<HasLog>, Founding) {
    let place = Place { folder: folder.to_owned(), log: folder.join("wal") };
    let known = Known::begin(&place, HasLog(false)).unwrap();
    let says = Arc::clone(said);
    let founding = known.founding(2, move |_| Some(says.lock().unwrap().clone())).unwrap();
    let three = Three::start_founding([0; 3], Some(founding.clone()), |_| (GROUP, None));
    three.third_is_alone();
    assert!(!known.identity().has_log());
    (three, known, founding)
}

#[test]
fn a_founder_says_and_hears_nothing_until_others_say_that_they_do_not_know_it() {
    let said = Arc::new(Mutex::new(Said::CannotTell("not yet".into())));
    let folder = harness::folder();
    let (three, known, founding) = with_a_founder(&said, folder.path());
    *said.lock().unwrap() = Said::Nothing;
    three.all_apply("together");
    assert!(known.identity().has_log() && known.founding(2, |_| None).is_none(), "it asks again at its next start");
    assert_eq!(founding.is_known_to(), None);
}

#[test]
fn a_founder_that_another_member_knows_is_told_so() {
    let said = Arc::new(Mutex::new(Said::HasAcknowledged));
    let folder = harness::folder();
    let (_three, known, founding) = with_a_founder(&said, folder.path());
    harness::until("it is told", || founding.is_known_to().is_some_and(|by| by < 3));
    *said.lock().unwrap() = Said::Nothing;
    thread::sleep(Duration::from_millis(300));
    assert!(founding.is_known_to().is_some() && !known.identity().has_log(), "another one's word changes nothing");
}

#[test]
fn a_member_with_the_log_of_another_group_of_that_number_is_refused() {
    Three::start_of([5, 5, 6], |_| (GROUP, None)).third_is_alone();
}

#[test]
fn a_member_is_hung_up_on_when_it_becomes_known_that_it_has_another_log() {
    let three = Three::start_of([0, 0, 6], |_| (GROUP, None));
    // As long as the others do not know, it is one of them.
    three.all_apply("first");
    for (host, (_, peers)) in three.hosts.iter().zip(&three.members).take(2) {
        host.0.store(5, Ordering::Relaxed);
        peers.log_is_known();
    }
    let alone = &three.members[2].0;
    alone.handle.wait_for(|status| status.leader.is_none() && status.role != Role::Leader, LONG).unwrap();
    let (_, index) = three.propose("without it");
    three.members[..2].iter().for_each(|(running, _)| running.wait_until_applied(index));
    assert!(!alone.commands().contains(&"without it".to_owned()));
}

#[test]
fn members_that_learn_which_log_they_have_stay_connected() {
    let three = Three::start(|_| (GROUP, None));
    three.all_apply("first");
    let connected = || -> Vec<_> {
        let of = |peers: &Peers| (1..=3).map(|id| peers.here_since(id)).collect::<Vec<_>>();
        three.members.iter().map(|(_, peers)| of(peers)).collect()
    };
    let before = connected();
    for (host, (_, peers)) in three.hosts.iter().zip(&three.members) {
        host.0.store(5, Ordering::Relaxed);
        peers.log_is_known();
    }
    three.all_apply("second");
    assert_eq!(connected(), before);
}

#[test]
fn a_member_with_a_certificate_of_another_authority_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    // It trusts the others; they do not trust it.
    let three = Three::start(|id| {
        let tls = if id == 3 { other.tls(&authority) } else { authority.tls(&authority) };
        (GROUP, Some(tls))
    });
    three.third_is_alone();
}

#[test]
fn a_member_without_tls_is_refused() {
    let authority = Authority::new();
    let three = Three::start(|id| (GROUP, (id != 3).then(|| authority.tls(&authority))));
    three.third_is_alone();
    // What comes looks like damage to both, and both are told what it may be.
    let asked = |id: u64, tls: Option<&Tls>| ask(&three.addresses[&id], tls).unwrap_err().to_string();
    let said = asked(1, None);
    assert!(said.contains("this member speaks no TLS to other members"), "{said}");
    let said = asked(3, Some(&authority.tls(&authority)));
    assert!(said.contains("this member speaks TLS to other members"), "{said}");
    let said = asked(1, Some(&authority.tls(&Authority::new())));
    assert!(said.contains("invalid peer certificate") && !said.contains("speaks TLS"), "{said}");
}

#[test]
fn a_member_that_comes_back_is_connected_again_also_elsewhere() {
    let mut three = Three::start(|_| (GROUP, None));
    three.all_apply("first");
    let (running, _) = three.members.remove(2);
    running.member.stop().unwrap();
    three.propose("without it");
    let (listener, address) = listen();
    for (_, peers) in &three.members {
        peers.set(3, Some(&address.to_string())).unwrap();
    }
    let back = three.member(3, listener, GROUP, None);
    three.members.push(back);
    three.all_apply("together again");
    assert!(three.members[2].0.commands().contains(&"without it".to_owned()));
}

#[test]
fn a_member_that_is_no_longer_told_of_is_not_reached() {
    let three = Three::start(|_| (GROUP, None));
    three.all_apply("first");
    for (running, peers) in &three.members {
        for other in (1..=3).filter(|other| (*other == 3) != (running.id == 3)) {
            peers.set(other, None).unwrap();
        }
    }
    let alone = &three.members[2].0;
    alone.handle.wait_for(|status| status.leader.is_none() && status.role != Role::Leader, LONG).unwrap();
    let (_, index) = three.propose("without it");
    three.members[..2].iter().for_each(|(running, _)| running.wait_until_applied(index));
    assert!(!alone.commands().contains(&"without it".to_owned()));
}

/// A port whose machine answers no further connection, as one that is gone: what waits to be accepted is as much as it takes.
fn silent() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
    let (listener, address) = listen();
    rustix::net::listen(&listener, 0).unwrap();
    let waiting = std::iter::from_fn(|| TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok());
    let waiting = waiting.collect();
    (listener, waiting, address)
}

/// Whether somebody waits for an answer from this port.
fn is_connecting(to: SocketAddr) -> bool {
    let (port, sockets) = (format!(":{:04X}", to.port()), std::fs::read_to_string("/proc/net/tcp").unwrap());
    let mut sockets = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    sockets.any(|fields| fields.get(2).is_some_and(|remote| remote.ends_with(&port)) && fields.get(3) == Some(&"02"))
}

/// Who removed a member whose machine was gone waited for its thread, up to five seconds, and everybody beside it did.
#[test]
fn who_lets_a_member_go_does_not_wait_for_a_connection_to_it() {
    let three = Three::start(|_| (GROUP, None));
    three.all_apply("first");
    let (listener, waiting, address) = silent();
    let peers = &three.members[0].1;
    peers.set(4, Some(&address.to_string())).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_connecting(address) {
        assert!(Instant::now() < deadline, "nobody connects");
        thread::sleep(Duration::from_millis(1));
    }
    let begin = Instant::now();
    peers.set(4, None).unwrap();
    let (is_still_connecting, took) = (is_connecting(address), begin.elapsed());
    assert!(is_still_connecting, "it waited for the connection: {took:?}");
    assert!(!peers.known().contains(&4));
    drop((listener, waiting));
    three.all_apply("without it");
}

/// A hello took as long as bytes came, and strangers took the places of members: a group lost its majority with the next restart.
#[test]
fn strangers_that_send_a_byte_now_and_then_keep_no_member_out() {
    let mut three = Three::start(|_| (GROUP, None));
    three.all_apply("first");
    let (running, _) = three.members.remove(2);
    running.member.stop().unwrap();
    let (address, ends) = (three.addresses[&1].clone(), Arc::new(AtomicBool::new(false)));
    let (full, is_full) = channel();
    let strangers = thread::spawn({
        let ends = Arc::clone(&ends);
        move || {
            let open = || TcpStream::connect(&address).unwrap();
            let mut sockets: Vec<TcpStream> = (0..256).map(|_| open()).collect();
            full.send(()).unwrap();
            while !ends.load(Ordering::Relaxed) {
                for socket in &mut sockets {
                    // Of a head that never ends.
                    if socket.write_all(&[0]).is_err() {
                        *socket = open();
                    }
                }
                thread::sleep(Duration::from_millis(700));
            }
        }
    });
    is_full.recv().unwrap();
    let (listener, address) = listen();
    for (_, peers) in &three.members {
        peers.set(3, Some(&address.to_string())).unwrap();
    }
    let back = three.member(3, listener, GROUP, None);
    three.members.push(back);
    let deadline = Instant::now() + Duration::from_secs(60);
    while three.members[0].1.here_since(3).is_none() {
        assert!(Instant::now() < deadline, "the member is kept out");
        thread::sleep(Duration::from_millis(10));
    }
    ends.store(true, Ordering::Relaxed);
    strangers.join().unwrap();
    three.all_apply("together again");
}

/// Strangers say all sorts of things: the member goes on, and who says nothing sensible is hung up on.
#[test]
fn garbage_on_the_port_harms_nobody() {
    let three = Three::start(|_| (GROUP, None));
    three.all_apply("first");
    let garbage: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nhost: member\r\n\r\n".to_vec(),
        vec![0; 64],
        vec![0xff; 64],
        [&32_u32.to_le_bytes()[..], &[0; 36]].concat(),
    ];
    for (bytes, address) in garbage.iter().zip(three.addresses.values().cycle()) {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(bytes).unwrap();
        let mut rest = Vec::new();
        // Reset or closed: both are an end.
        let _ = socket.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    three.all_apply("second");
}

/// Of what was lost only that was counted which a full queue had no room for.
#[test]
fn messages_to_who_cannot_be_reached_are_counted() {
    let (_, nowhere) = listen();
    for addresses in [BTreeMap::new(), BTreeMap::from([(2, nowhere.to_string())])] {
        let (listener, _) = listen();
        let tcp = Tcp::new(TcpOptions::new(1, GROUP, vec![listener], addresses));
        let (peers, scratch) = (tcp.peers(), harness::folder());
        let origin = Origin::Found(Membership::of([1, 2]));
        let _asks =
            start_in(1, settings(), Limits::default(), directories(scratch.path()), origin, Box::new(tcp)).unwrap();
        let lost = || peers.traffic().iter().find(|(to, _)| *to == 2).map_or(0, |(_, to)| to.lost_messages);
        harness::until("messages to be lost", || lost() > 0);
    }
    let (listener, _) = listen();
    let peers = Tcp::new(TcpOptions::new(1, GROUP, vec![listener], BTreeMap::new())).peers();
    peers.send(2, Bytes::from_static(b"note"));
    assert_eq!(peers.traffic().iter().map(|(to, counted)| (*to, counted.lost_messages)).collect::<Vec<_>>(), [(2, 1)]);
}
