//! FAILOVER: a master hands the lead over to one of its replicas, and nothing that was acknowledged is lost.
//!
//! Writes are postponed until a replica has the whole stream. Then this server follows it and asks it, by `PSYNC … FAILOVER`, to lead;
//! if it does, the roles are exchanged, and if it refuses, this server leads again. Nobody follows this server meanwhile.
//!
//! There are never two who lead, unless FAILOVER ABORT makes them: a target whose answer did not come may lead, and is asked again for as
//! long as it takes. Only an answer that such a target cannot give lets this server lead again.

use super::Replica;
use super::link::Next;

/// A lead that is being handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failover {
    /// To whom: an address and a port. Nobody: to the first who has the whole stream.
    pub target: Option<(String, i64)>,
    /// How long that is waited for, milliseconds since 1970.
    pub deadline: Option<i64>,
    /// The target gets the lead at the deadline whatever it lacks; else it is given up. Once it is in progress: it may lack something.
    pub is_forced: bool,
    /// The target was chosen, is followed, and is being asked to lead.
    pub is_in_progress: bool,
    /// What it is asked.
    pub question: Question,
}

/// What the target is asked, which depends on what is known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Question {
    /// To lead. It was not asked before.
    #[default]
    First,
    /// To lead. It was asked before, and its answer did not come: it may lead.
    Again,
    /// For its stream: asked again, it has said that it leads, as Redis does. The stream tells whether it has all of ours.
    Stream,
}

/// What the target's answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leads, and is followed.
    Leads,
    /// It leads, and is to be asked for its stream.
    MayBeFollowed,
    /// It has not taken the lead, and why.
    Refuses(String),
    /// It leads, or may, without what was acknowledged here: nobody follows it.
    Lacks(String),
    /// Nothing: it is asked again.
    Nothing,
}

impl Failover {
    /// The words behind `PSYNC id offset`.
    pub fn demand(&self) -> &'static [&'static [u8]] {
        match (self.is_in_progress && self.question != Question::Stream, self.is_forced) {
            (false, _) => &[],
            (true, false) => &[b"FAILOVER"],
            // Redis reads no further than FAILOVER, and lets itself be forced always.
            (true, true) => &[b"FAILOVER", b"FORCE"],
        }
    }

    /// The connection is over before its answer has come.
    pub fn note_silence(&mut self) {
        self.question = Question::Again;
    }

    /// What the target says with this line, read as an answer to PSYNC. This server has so many bytes of the stream.
    pub fn judge(&self, line: &[u8], answer: &Result<Next, String>, offset: u64) -> Verdict {
        let text = String::from_utf8_lossy(line);
        match answer {
            // Who was asked before may have gone on for longer than its backlog is; else it would not need to send its keys.
            Ok(Next::Full(_, end)) if !self.is_forced && (self.question == Question::First || *end < offset) => {
                Verdict::Lacks(format!(
                    "the target answered '{text}', and lacks what was acknowledged here before byte {offset}: this server leads; \
                     if the target leads, too, send it REPLICAOF"
                ))
            }
            Ok(_) => Verdict::Leads,
            Err(why) if text.starts_with('-') => match self.question {
                Question::First => Verdict::Refuses(format!("Failover target rejected psync request: {why}")),
                Question::Again if text.starts_with("-ERR PSYNC FAILOVER can't be sent to a master") => {
                    Verdict::MayBeFollowed
                }
                // Only who follows says so. Any other error may come from who has taken the lead.
                Question::Again if text.starts_with("-ERR PSYNC FAILOVER ") => {
                    Verdict::Refuses(format!("Failover target rejected psync request: {why}"))
                }
                Question::Again | Question::Stream => Verdict::Nothing,
            },
            Err(_) => Verdict::Nothing,
        }
    }

    /// The word that INFO has for it.
    pub fn state_word(failover: Option<&Self>) -> &'static str {
        match failover {
            None => "no-failover",
            Some(failover) if failover.is_in_progress => "failover-in-progress",
            Some(_) => "waiting-for-sync",
        }
    }
}

/// Whether a replica is what FAILOVER names.
pub fn is_at(replica: &Replica, address: &str, (host, port): &(String, i64)) -> bool {
    address.eq_ignore_ascii_case(host) && i64::from(replica.port) == *port
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::link::{Asked, Introduction};

    const ID: &str = "0123456789012345678901234567890123456789";
    /// Bytes of the stream that the old master has.
    const OFFSET: u64 = 41;

    fn failover(question: Question, is_forced: bool) -> Failover {
        Failover { is_forced, is_in_progress: true, question, ..Failover::default() }
    }

    fn judge(question: Question, is_forced: bool, line: &str) -> Verdict {
        let answer = Introduction::default().on_answer(Asked::Sync, line.as_bytes());
        failover(question, is_forced).judge(line.as_bytes(), &answer, OFFSET)
    }

    #[test]
    fn a_target_that_may_lead_is_not_led_beside() {
        use Question::{Again, First, Stream};
        let errors = [
            ("-NOPERM this user has no permissions to run the 'psync' command", [true, false, false]),
            ("-LOADING Redis is loading the dataset in memory", [true, false, false]),
            ("-NOMASTERLINK Can't SYNC while failing over", [true, false, false]),
            ("-ERR PSYNC FAILOVER replid must match my replid.", [true, true, false]),
            ("-ERR PSYNC FAILOVER offset 41 is ahead of mine, which is 40.", [true, true, false]),
        ];
        for (line, proves) in errors {
            for (question, proves) in [First, Again, Stream].into_iter().zip(proves) {
                let verdict = judge(question, false, line);
                assert_eq!(matches!(verdict, Verdict::Refuses(_)), proves, "{question:?} {line}: {verdict:?}");
                assert!(proves || verdict == Verdict::Nothing, "{question:?} {line}: {verdict:?}");
            }
        }
        let leads = "-ERR PSYNC FAILOVER can't be sent to a master.";
        assert!(matches!(judge(First, false, leads), Verdict::Refuses(_)), "nobody has asked it to");
        assert_eq!(judge(Again, false, leads), Verdict::MayBeFollowed);
        assert_eq!(judge(First, false, "what is that"), Verdict::Nothing);
        for question in [First, Again, Stream] {
            assert_eq!(judge(question, false, &format!("+CONTINUE {ID}")), Verdict::Leads);
        }
    }

    #[test]
    fn who_lacks_what_was_acknowledged_is_followed_by_force_alone() {
        use Question::{Again, First, Stream};
        for (question, end, is_followed) in [
            (First, OFFSET - 1, false),
            (First, OFFSET, false),
            (Again, OFFSET - 1, false),
            (Stream, OFFSET - 1, false),
            // It has taken the lead, and has gone on.
            (Again, OFFSET, true),
            (Stream, OFFSET + 1_000_000, true),
        ] {
            let line = format!("+FULLRESYNC {ID} {end}");
            let verdict = judge(question, false, &line);
            assert_eq!(verdict == Verdict::Leads, is_followed, "{question:?} {line}: {verdict:?}");
            assert_eq!(matches!(verdict, Verdict::Lacks(_)), !is_followed, "{question:?} {line}: {verdict:?}");
            assert_eq!(judge(question, true, &line), Verdict::Leads);
        }
    }

    #[test]
    fn the_target_is_asked_to_lead_until_it_says_that_it_does() {
        let mut asked = failover(Question::Stream, false);
        assert!(asked.demand().is_empty());
        asked.note_silence();
        assert_eq!(asked.demand(), [b"FAILOVER"]);
        assert_eq!(failover(Question::First, true).demand(), [b"FAILOVER".as_slice(), b"FORCE"]);
        assert!(Failover { is_in_progress: false, ..asked }.demand().is_empty());
    }
}
