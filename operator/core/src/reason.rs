//! Why an object waits for its user, or a pod does not run: one word each, which users read in conditions and events, and wait for.
//!
//! The word is the variant's name, so that none can be misspelt; what is decided by a reason is decided for each of them.

/// What ends what a reason says: whoever waits for it knows by that whether a look is due although nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cure {
    /// A change of an object that users write, and these are watched.
    Watched,
    /// A change of something that nobody watches, such as a Secret, a quota, or what belongs to somebody else.
    Unwatched,
    /// Nothing: it stays so until another object has the name.
    Never,
}

/// Makes an enumeration of reasons from rows: the word, and what ends it. Behind a semicolon may stand what has reasons of its own.
macro_rules! reasons {
    ($(#[doc = $about:literal])+ $name:ident {
        $($(#[doc = $doc:literal])+ $word:ident: $cure:ident,)+
        $(; $(#[doc = $of:literal])+ $part:ident($reason:ident))?
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $doc])+ $word,)+
            $($(#[doc = $of])+ $part($reason),)?
        }

        impl $name {
            #[cfg(test)]
            const ROWS: &[Self] = &[$(Self::$word,)+];

            /// CamelCase, one word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => stringify!($word),)+
                    $(Self::$part(reason) => reason.as_str(),)?
                }
            }

            /// What ends it.
            pub fn cure(self) -> Cure {
                match self {
                    $(Self::$word => Cure::$cure,)+
                    $(Self::$part(reason) => reason.cure(),)?
                }
            }
        }
    };
}

reasons! {
/// Why an object waits for what only its user can change.
Reason {
    /// This version cannot read it.
    Unreadable: Watched,
    /// Its own spec is wrong.
    InvalidSpec: Watched,
    /// The API server refuses something for good.
    Refused: Unwatched,
    /// The operator lacks a right, or a policy forbids something.
    Forbidden: Unwatched,
    /// A quota is used up.
    QuotaExceeded: Unwatched,
    /// An object that it needs is there already, and somebody else's.
    NameTaken: Unwatched,
    /// What was measured is not what the operator wrote, or cannot be read.
    InvalidRecord: Never,
    /// A StorageService that it names is not there.
    ServiceMissing: Watched,
    /// A StorageService that it names is wrong in itself.
    InvalidService: Watched,
    /// A ControlPlane that it names is not there.
    ControlPlaneMissing: Watched,
    /// A ControlPlane that it names is wrong in itself.
    InvalidControlPlane: Watched,
    /// A WorkloadTemplate that it names is not there.
    WorkloadTemplateMissing: Watched,
    /// A WorkloadTemplate that it names is wrong in itself.
    InvalidWorkloadTemplate: Watched,
    /// A BenchmarkRun that it names is not there.
    RunMissing: Watched,
    /// A BenchmarkRun that it names is wrong in itself.
    InvalidRun: Watched,
    /// A BenchmarkBaseline that it names is not there.
    BaselineMissing: Watched,
    /// A BenchmarkBaseline that it names is wrong in itself.
    InvalidBaseline: Watched,
    /// A BenchmarkBaseline that it names keeps nothing yet.
    BaselineNotReady: Watched,
    /// A Secret with a kubeconfig is not there.
    SecretMissing: Unwatched,
    /// A Secret is not there, or not labelled.
    SecretNotAllowed: Unwatched,
    /// A Secret lacks what is needed of it.
    InvalidSecret: Unwatched,
    /// A cluster that was there already does not answer.
    ClusterUnreachable: Unwatched,
    /// Clusters that were there already cannot be compared.
    ClustersUnlike: Unwatched,
    /// A Secret was changed in mid-run.
    SecretChanged: Never,
    /// A StorageService was changed in mid-run.
    ServiceChanged: Never,
    /// A ControlPlane was changed in mid-run.
    ControlPlaneChanged: Never,
    /// A WorkloadTemplate was changed in mid-run.
    WorkloadTemplateChanged: Never,
    /// The operator was changed in mid-run.
    OperatorChanged: Never,
    /// A tag came to mean another image in mid-run.
    ImageChanged: Never,
    /// The trials of a run took longer than they may.
    TooLong: Never,
    /// The report of a run could not be written.
    ReportNotWritten: Never,
    /// Another ControlPlane is in the store.
    ServiceTaken: Unwatched,
    /// The store does not serve what an API server needs.
    StoreUnfit: Watched,
    /// What a baseline kept was deleted.
    FiguresGone: Unwatched,
    /// The run of a baseline is over and has nothing that counts.
    RunInvalid: Never,
    /// A run of a suite waits for its user.
    RunStalled: Watched,
    /// The template of a suite was changed under way.
    TemplateChanged: Watched,
    ;
    /// A pod of it does not run.
    Pod(PodReason)
}}

// Nodes, volumes and registries are watched by nobody.
reasons! {
/// Why a pod does not run.
PodReason {
    /// Its node had no room for it any more.
    Evicted: Unwatched,
    /// No node takes it.
    Unschedulable: Unwatched,
    /// A volume that it claims is not there.
    VolumeUnbound: Unwatched,
    /// An image cannot be pulled.
    ImageUnavailable: Unwatched,
    /// A container ends again and again.
    CrashLoop: Unwatched,
    /// A container cannot be made.
    ContainerNotCreated: Unwatched,
}}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(cure: Cure) -> String {
        let chosen = Reason::ROWS.iter().filter(|reason| reason.cure() == cure);
        chosen.map(|reason| reason.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Alerts and `kubectl wait` name these words: one that is renamed here is missed there.
    #[test]
    fn every_reason_is_the_word_that_users_wait_for_and_has_a_decision() {
        assert_eq!(
            words(Cure::Watched),
            "Unreadable InvalidSpec ServiceMissing InvalidService ControlPlaneMissing InvalidControlPlane \
             WorkloadTemplateMissing InvalidWorkloadTemplate RunMissing InvalidRun BaselineMissing InvalidBaseline \
             BaselineNotReady StoreUnfit RunStalled TemplateChanged"
        );
        assert_eq!(
            words(Cure::Unwatched),
            "Refused Forbidden QuotaExceeded NameTaken SecretMissing SecretNotAllowed InvalidSecret \
             ClusterUnreachable ClustersUnlike ServiceTaken FiguresGone"
        );
        assert_eq!(
            words(Cure::Never),
            "InvalidRecord SecretChanged ServiceChanged ControlPlaneChanged WorkloadTemplateChanged OperatorChanged \
             ImageChanged TooLong ReportNotWritten RunInvalid"
        );
        let of_pods = PodReason::ROWS.iter().map(|reason| Reason::Pod(*reason));
        assert!(of_pods.clone().all(|reason| reason.cure() == Cure::Unwatched));
        assert_eq!(
            of_pods.map(Reason::as_str).collect::<Vec<_>>().join(" "),
            "Evicted Unschedulable VolumeUnbound ImageUnavailable CrashLoop ContainerNotCreated"
        );
    }
}
