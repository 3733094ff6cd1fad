//! What a command that ended has left: its exit code and what it printed.

use std::process::Output;

pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The one line of an error, in which each of these must stand.
    #[track_caller]
    pub fn error(&self, parts: &[&str]) {
        assert_eq!(self.stdout, "", "{}", self.stderr);
        self.error_after_output(parts);
    }

    /// The same where something else was right, and is printed.
    #[track_caller]
    pub fn error_after_output(&self, parts: &[&str]) {
        self.one_line(1, parts);
    }

    /// The one line of what could not be compared, which is no error.
    #[track_caller]
    pub fn nothing_to_compare(&self, parts: &[&str]) {
        assert_eq!(self.stdout, "", "{}", self.stderr);
        self.one_line(3, parts);
    }

    #[track_caller]
    fn one_line(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        assert!(self.stderr.starts_with("storebench: "), "{}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in {}", self.stderr);
        }
    }

    pub fn report(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no report ({error}): {} {}", self.stdout, self.stderr))
    }

    /// The verdict's one line, after checking that the run is Invalid and says so in its exit code.
    pub fn invalid(&self) -> String {
        let report = self.report();
        let message = report["judgement"]["message"].as_str().unwrap().to_owned();
        assert_eq!(report["judgement"]["verdict"], "Invalid", "{message}");
        assert_eq!(self.code, Some(4), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    }
}
